"""Numbers of the card that choose items of a list: the largest item has the least number in one other run, and the most in the next."""

import unittest

from dry_program import Dry
from observer_cases import Observer

DOCUMENTS = """
import torch
net = torch.nn.Linear(64, 1).cuda()

class Reader:
    def __init__(self):
        self.documents = [torch.zeros(n, 64) for n in ({})]

    def work(self):
        documents = self.documents
        scores = torch.stack([net(d.cuda()).mean() for d in documents]).detach()
        {}

Reader().work()
"""
WAYS = {
    "best = documents[scores.argmax().item()]": (1024, 512, 65536),
    "best = documents[scores.min(0).indices]": (1024, 65536, 512),
    "best = documents[scores.argsort(descending=True)[-1]]": (2048, 65536, 512),
    "best = documents[scores.topk(5, largest=False).indices.tolist()[0]]": (None, 65536, 512),
    "ranked = sorted(zip(scores.tolist(), range(5)))\n        best = documents[ranked[0][1]]": (512, 65536, 512),
    "values = scores.cpu().tolist()\n        best = documents[max(range(5), key=lambda i: values[i])]": (512, 512, 65536),
    "best = documents[int(numpy.argmax(scores.cpu().numpy()))]": (512, 512, 65536),
}
RUNS = ["random+order:less", "random+order:more"]


class Items(Dry):
    asked = staticmethod(lambda marks: [m[1].split("|")[0] for m in marks if m[0] == "run" and "order" in m[1]])

    def chosen(self, sizes, *ways, **environment):
        works = "".join(way + "\n        net(best.cuda())\n        print(len(best))\n        " for way in ways)
        lines, marks = self.dry("import numpy\n" + DOCUMENTS.format(sizes, works), **environment)
        return [int(line) for line in lines], self.asked(marks)

    def test_the_largest_item_has_the_least_number_and_the_most(self):
        sizes = "512, 65536, 1024, 4096, 2048"
        usual, less, more = ([of[i] for of in WAYS.values()] for i in range(3))
        lines, asked = self.chosen(sizes, *WAYS)
        self.assertEqual((asked, [n if of else of for n, of in zip(lines, usual)]), (RUNS, usual))
        self.assertEqual([self.chosen(sizes, *WAYS, HEADROOM_DRY_ROUTING=way)[0] for way in RUNS], [less, more])
        for way in list(WAYS)[0::4]:
            self.assertEqual(self.chosen(sizes, way)[1], RUNS, way)

    def test_no_run_is_asked_for_where_nothing_follows_from_which_item_it_is(self):
        self.assertEqual(self.chosen("512, 512, 512, 512, 512", *WAYS)[1], [], "they are alike")
        only_told = "best = documents[0]\n        print(scores.argmax().item())"
        self.assertEqual(self.chosen("512, 1024, 65536, 4096, 2048", only_told)[1], [])


class Sizes(Observer):
    def test_items_are_put_in_the_order_of_their_sizes(self):
        code = """
            from headroom_dry.items import by_size
            texts = ["aaaa" * 9, "a", "a" * 400]

            class Kept:
                def __init__(self):
                    self.batches = [{"ids": [7] * n} for n in (5, 90, 2, 40)]
                def look(self):
                    return by_size(4)
                def look_in_variables(self, lengths=(512, 64, 2048, 128, 32)):
                    alike = [1, 1, 1, 1, 1]
                    return by_size(5)
            print(by_size(3), Kept().look(), Kept().look_in_variables(), by_size(6), by_size(1))
            """
        folder = self.folder({"sizes.py": code})
        self.assertEqual(self.run_python("import sizes", folder), ["[1, 0, 2] [2, 0, 3, 1] [4, 1, 3, 0, 2] None None"])


if __name__ == "__main__":
    unittest.main()
