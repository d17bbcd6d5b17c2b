"""Substitutes of --try: what each saves, and what it says that it replaced."""

import unittest

from dry_program import Dry, NET


class Substitutes(Dry):
    def tried(self, word, made="torch.optim.AdamW(net.parameters())", autocast=True):
        lines, marks = self.dry(NET + f"o = {made}\nfor _ in range(3):\n    step(o, {autocast})\n"
                                "print(torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated())\n", HEADROOM_DRY_TRY=word, HEADROOM_DRY_STEPS="9")
        return [int(n) for n in lines[-1].split()], [m for m in marks if m[0] in ("replaced", "cannot")]

    def test_each_saves_what_it_should_and_says_what_it_replaced(self):
        (peak, held), marks = self.tried("")
        self.assertEqual(marks, [])
        for word, count, peak_falls, held_falls in (("adamw-8bit", 1, True, True), ("checkpoint", 4, True, False), ("bf16", None, True, True)):
            with self.subTest(word):
                (less, kept), marks = self.tried(word)
                self.assertEqual([m[0] for m in marks], ["replaced"])
                self.assertTrue(marks[0][1].startswith(word + ": "), marks)
                if count:
                    self.assertEqual(marks[0][2], count)
                self.assertEqual((less < peak, kept < held), (peak_falls, held_falls), (less, peak, kept, held))
        (less, kept), marks = self.tried("adamw-fused")
        self.assertEqual([m[0] for m in marks], ["replaced"])
        self.assertEqual(kept, held + 27 * 512)  # a fused step counts on the card, for each of the 27 parameters
        self.assertLessEqual(less, peak + 27 * 512)

    def test_one_that_finds_nothing_says_so(self):
        _, marks = self.tried("adamw-fused", "torch.optim.SGD(net.parameters(), lr=0.1)")
        self.assertEqual(marks, [("cannot", "adamw-fused: the program made nothing that it replaces", 0)])
        _, marks = self.tried("adamw-fused", "torch.optim.AdamW(net.parameters(), fused=True)")
        self.assertEqual(marks, [("cannot", "adamw-fused: AdamW is fused already", 0)])
        _, marks = self.tried("nothing-like-it")
        self.assertEqual(marks, [("cannot", "nothing-like-it: no substitute has this name", 0)])

    def test_a_setting_of_the_allocator_is_added_to_the_programs_own(self):
        """Wherever the program gives them: a variable of its own would hide the one that is tried."""
        seen = """
print({k: torch.cuda.memory._snapshot()["allocator_settings"][k] for k in ("expandable_segments", "max_split_size", "garbage_collection_threshold")})
"""
        tried = {"HEADROOM_DRY_ALLOCATOR": "expandable_segments:True,max_split_size_mb:64"}
        own = "'max_split_size_mb:32,garbage_collection_threshold:0.5'"
        wanted = {"expandable_segments": True, "max_split_size": 64 << 20, "garbage_collection_threshold": 0.5}
        for begin in ("import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = {}\nimport torch\ntorch.zeros(1, device='cuda')",
                      "import os, torch\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = {}\ntorch.zeros(1, device='cuda')",
                      "import torch\ntorch.zeros(1, device='cuda')\ntorch.cuda.memory._set_allocator_settings({})"):
            self.assertEqual(eval(self.dry(begin.format(own) + seen, **tried)[0][-1]), wanted, begin)
        own = eval(self.dry(begin.format(own) + seen)[0][-1])
        self.assertEqual((own["expandable_segments"], own["max_split_size"]), (False, 32 << 20))


if __name__ == "__main__":
    unittest.main()
