#!/usr/bin/env python3
"""Writes text.txt, the text that train_lm learns from: small sentences about a harbour, put together by a seeded grammar.
The text was made for this project by this program and is under the project's licence (LICENSE)."""

import pathlib
import random

PEOPLE = ["the old pilot", "a fisher", "the baker's daughter", "the lamp keeper", "a tired sailor", "the harbour master",
          "my brother", "the rope maker", "a girl with a lantern", "the smith"]
THINGS = ["a net", "two oars", "the heavy chain", "a basket of bread", "the blue boat", "a letter", "the green lamp",
          "an anchor", "a coil of rope", "the long ladder"]
PLACES = ["by the sea wall", "under the bridge", "at the end of the pier", "in the empty market", "near the lighthouse",
          "behind the boat house", "on the wet stones", "beside the well"]
TIMES = ["before sunrise", "after the storm", "at noon", "when the tide turned", "in the long winter", "every evening",
         "on the first warm day"]
DOES = ["mended", "carried", "painted", "lost", "found", "sold", "hid", "lifted", "cleaned", "borrowed"]
SAYS = ["the wind will turn", "no ship comes today", "the water is rising", "there is time for bread", "the light is out",
        "we sail tomorrow", "the rope will hold", "it is only rain"]


def sentence(choose):
    person = choose(PEOPLE)
    kind = choose([0, 0, 1, 2, 3])
    if kind == 0:
        text = f"{person} {choose(DOES)} {choose(THINGS)} {choose(PLACES)} {choose(TIMES)}."
    elif kind == 1:
        text = f'"{choose(SAYS)}," said {person}, and {choose(DOES)} {choose(THINGS)}.'
    elif kind == 2:
        text = f"{choose(TIMES)} {person} and {choose(PEOPLE)} {choose(DOES)} {choose(THINGS)} together."
    else:
        text = f"nobody saw {person} {choose(PLACES)}; {choose(PEOPLE)} had {choose(DOES)} {choose(THINGS)}."
    first = 1 if text[0] == '"' else 0
    return text[:first] + text[first].upper() + text[first + 1:]


def main():
    choose = random.Random(20261120).choice
    lines = [" ".join(sentence(choose) for _ in range(choose([3, 4, 5, 6]))) for _ in range(300)]
    pathlib.Path(__file__).with_name("text.txt").write_text("\n".join(lines) + "\n")


main()
