#!/usr/bin/env python3
"""Writes examples/lighthouse.txt: a keeper's log, composed by a small grammar with a fixed seed. Public domain."""
import random

r = random.Random(1893)
winds = "a light air|a steady breeze|a fresh gale|hardly any wind|a hard blow|a whole gale".split("|")
quarters = "north|north-east|east|south-east|south|south-west|west|north-west".split("|")
skies = "clear|overcast|hazy, with rain to seaward|bright after rain|thick with fog|broken, the moon showing between clouds".split("|")
ships = "a collier|two herring boats|the mail steamer|a three-masted barque|a schooner under reefed sails|a tug with a barge behind her|nobody at all".split("|")
chores = ("trimmed the wicks and wiped the lenses", "wound the clockwork and oiled its bearings", "carried up forty gallons of oil",
          "painted the gallery rail", "swept the stairs, all one hundred and twelve of them", "mended the glass that the gannet broke",
          "cleaned the brass until I could read by it", "wrote to the Board about the chimney")
thoughts = ("The lamp does not care who looks at it, and that is why it can be trusted.",
            "One counts the seconds between the flashes and finds the night is longer than it was.",
            "My brother says a light is a promise made to strangers.", "What is written down at once need not be remembered.",
            "The sea keeps no log, so I keep one for both of us.", "It is easier to keep a light burning than to light it again.")
months = (("January", 31), ("February", 28), ("March", 31), ("April", 30), ("May", 31))
out = ["THE LOG OF THE LIGHTHOUSE AT GREY POINT\n"]
for month, days in months:
    for day in range(1, days + 1):
        s = f"{day} {month}. {r.choice(winds).capitalize()} from the {r.choice(quarters)}, sky {r.choice(skies)}. "
        s += f"Lit the lamp at {r.randint(4, 8)} and put it out at {r.randint(4, 7)}. I {r.choice(chores)}"
        s += f", and then {r.choice(chores)}. " if r.random() < 0.5 else ". "
        s += f"There passed {r.choice(ships)}, bound {r.choice(quarters)}. "
        if r.random() < 0.4:
            s += r.choice(thoughts) + " "
        if r.random() < 0.3:
            s += f"Oil left: {r.randint(40, 400)} gallons. "
        out.append(s.rstrip() + "\n")
print("\n".join(out), end="")
