"""Unknown numbers of which bounds are known: where a size is made of one, it is in the middle of them, and in the other runs at each end."""

import unittest

from dry_program import Dry

BOUNDS = 6


class Bounds(Dry):
    PROGRAM = """
        import torch
        x = torch.randn(16, device="cuda")
        def rows(n):
            return torch.zeros(n, device="cuda").shape[0]
        print(rows(int(x.sum().round().long().clamp(1, 65).item())), {})
        lengths = (x * 40).clamp(min=2, max=32).ceil().long()
        print(rows(lengths.max()), rows(int(lengths[3]) + 1), [rows(n) for n in lengths[4:6].tolist()], rows(lengths.sum().item()))
        print(rows(((x * 1e6).long() % 9)[0].item()), torch.ones(int(x[0].sigmoid() * 100)).shape[0], torch.zeros(5, 40, device="cuda")[:, :lengths.min()].shape[1])
        print(x.clamp(0, 9).mean().item(), lengths.max().item() > 3)
    """.format("rows(torch.searchsorted(torch.randn(8, device='cuda'), x)[2].item())")

    def test_a_size_is_in_the_middle_of_its_bounds_and_at_each_end(self):
        lines, marks = self.dry(self.PROGRAM)
        self.assertEqual(lines, ["33 4", "17 18 [17, 17] 272", "4 50 17", "0.75 True"])
        self.assertEqual([(m[1].rsplit("/", 1)[1], m[2]) for m in marks if m[0] == "routed"], [("program.py:6", BOUNDS)])
        self.assertEqual([m for m in marks if m[0] == "open"], [])
        self.assertEqual(self.dry(self.PROGRAM, HEADROOM_DRY_ROUTING="balanced")[0], ["1 0", "2 3 [2, 2] 32", "0 0 2", "0.75 False"])
        self.assertEqual(self.dry(self.PROGRAM, HEADROOM_DRY_ROUTING="worst")[0], ["65 8", "32 33 [32, 32] 512", "8 100 32", "0.75 True"])

    def test_a_size_that_is_such_a_number_itself_is_not_below_0(self):
        program = """
            import torch
            x, y = ((torch.randn(4, device="cuda") * 4).round().clamp(-8, 9).long() for _ in range(2))
            n = x[0].item()
            print(torch.zeros(n, 2, device="cuda").shape[0])
            m = (y - 1)[1].item()
            print(torch.zeros(16 + m, device="cuda").shape[0], torch.zeros(int(x.max()), device="cuda").shape[0])
        """
        for how, sizes in (("random", ["0", "16 0"]), ("balanced", ["0", "7 0"]), ("worst", ["9", "24 9"])):
            self.assertEqual(self.dry(program, **({} if how == "random" else {"HEADROOM_DRY_ROUTING": how}))[0], sizes)

    def test_two_unknown_numbers_are_at_their_ends_by_themselves(self):
        program = """
            import torch
            x, y = (torch.randn(4, device="cuda") for _ in range(2))
            def rows(n):
                return torch.zeros(n, device="cuda").shape[0]
            first, last = (x * 9).long().clamp(1, 65), (y * 9).long().clamp(1, 65)
            print(rows(((last - first) + 65)[0].item()))
            print(rows((x.clamp(-8, 8) * y.clamp(-1, 2) + 16).long()[1].item()))
        """
        for how, sizes in (("random", ["65", "16"]), ("balanced", ["1", "0"]), ("worst", ["129", "32"])):
            self.assertEqual(self.dry(program, **({} if how == "random" else {"HEADROOM_DRY_ROUTING": how}))[0], sizes)

    def test_what_is_written_over_has_no_bounds(self):
        program = """
            import torch
            x = torch.randn(4, device="cuda")
            n = (x * 9).long().clamp(1, 8)
            n += (x * 9).long()
            print(torch.zeros(n[0].item(), device="cuda").shape[0])
        """
        lines, marks = self.dry(program)
        self.assertEqual((lines, [m[0] for m in marks if m[0] in ("open", "routed")]), (["0"], ["open"]))


if __name__ == "__main__":
    unittest.main()
