"""The texts the tiny model knows by heart, and the prompts that ask for them.

Owns words only: no tokenizer, no tensors. Every plain text is long (hundreds of tokens), never
repeats itself within 64 tokens, and is full of characters that take several tokens each (CJK,
emoji, joined emoji), because a broken stream is joined wrongly exactly inside such characters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

THINK_WORD = "think"
TOOL_WORD = "tool"


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain answer: one of the openers with `topic` filled in, then `body`."""

    topic: str
    prompt: str
    body: str

    def answers(self) -> tuple[str, ...]:
        """The answer with each opener in turn."""
        return tuple(opener.format(topic=self.topic) + self.body for opener in OPENERS)


@dataclass(frozen=True, slots=True)
class Special:
    """An answer in a form that a parser reads: reasoning, tool calls, or both."""

    prompt: str
    answer: str


OPENERS = (
    "About {topic}: ",
    "So, {topic}. ",
    "You ask of {topic}; ",
    "Well, 🙂 {topic}! ",
)


def tool_call(name: str, **arguments: object) -> str:
    """A call as the Hermes format writes it."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def thought(reasoning: str) -> str:
    """Reasoning as Qwen3 writes it; the answer follows."""
    return f"<think>\n{reasoning}\n</think>\n\n"


PLAIN = (
    Plain(
        "the lighthouse",
        "Tell me about the lighthouse.",
        "the keeper climbs two hundred and six steps each evening, counting aloud so that the "
        "dark "
        "knows he is coming. He trims the wick, wipes salt from the glass, and writes one "
        "line in "
        "a blue book: wind from the west, a trawler late, gulls asleep. Ships never see him. "
        "They "
        "see a bright sweep over black water, then nothing, then the sweep again, and they turn "
        "away from the rocks without knowing whom to thank. On Sundays his daughter rows across "
        "with bread, lamp oil and gossip. She asks why he stays. He says a promise kept by "
        "nobody "
        "else becomes heavier, not lighter, and besides, the view is free. 🌊🗼 At dawn the lens "
        "stops, the kettle starts, and fog rolls home over the bay like a grey dog.",
    ),
    Plain(
        "江南的雨",
        "请讲讲江南的雨。",
        "春天的雨落在青石板上,像谁在轻轻翻一本旧书。巷口卖花的老人收起竹篮,把最后几枝栀子送给"
        "躲雨的"
        "学生。河面浮着薄雾,乌篷船慢慢划过石桥,船夫哼着听不清的小调。茶馆里有人下棋,有人打盹,檐下"
        "的燕子正教孩子怎样认路。傍晚云散了,远山露出一线淡绿,家家户户开始生火做饭。☔🍵 夜里灯"
        "亮起来,"
        "水里也亮起来,两座小镇隔着波纹互相打量,谁都不肯先睡。",
    ),
    Plain(
        "the night train",
        "Describe the night train to Kyiv.",
        "it leaves platform 9 at 22:47, eleven carriages, four of them sleeping cars painted "
        "green. "
        "The conductor, Mrs. Oksana, carries tea in glasses with metal holders and tells each "
        "passenger the same secret: sugar first, lemon last. Between Fastiv and the river the "
        "rails sing in thirds; a boy in berth 31 presses his ear to the wall and hums along. "
        "«Поїзд їде, ніч минає», says his grandmother, knitting a scarf no one has ordered. "
        "🚂 By "
        "03:15 only a chess player is awake, losing politely to himself. Birch forests go by, "
        "then a factory, a field of snow, one yellow window far off with somebody inside it who "
        "is also wondering who is passing. Arrival: 06:58, if heaven and the timetable agree.",
    ),
    Plain(
        "朝の市場",
        "朝の市場について教えてください。",
        "まだ暗いうちから、魚を運ぶ車の音が坂をのぼってくる。おばあさんは氷の上にいわしを並べ"
        "、値札を筆で"
        "書く。となりの店では豆腐が湯気を立て、猫が二匹、順番を待っている。🐟🐈 七時になると学"
        "校へ行く"
        "子どもたちが走り抜け、八百屋の主人がみかんをひとつ投げてくれる。雨の日は客が少ないけ"
        "れど、話は"
        "長くなる。昔この通りに映画館があったこと、海がもっと近かったこと。昼前には全部売れて"
        "、石畳に水が"
        "まかれ、静かな午後が始まる。",
    ),
    Plain(
        "my garden",
        "How is your garden this year?",
        "\n- 🌱 March: peas under glass, garlic up, one frost too many.\n- 🌷 April: tulips "
        "in a row; "
        "the neighbour's hens in another.\n- 🐝 May: first swarm, twenty stings, two jars of "
        "honey "
        "owed to me.\n- 🍓 June: strawberries vanish overnight; the suspect has feathers.\n- "
        "☀️ July: "
        "no rain for five weeks, so bath water goes to the beans.\n- 🦔 August: a hedgehog "
        "moves in "
        "beneath the shed and pays rent in slugs.\n- 🍎 September: apples, ladders, bruises, "
        "jam.\n"
        "- 🍂 October: leaves raked into a heap; children jump; rake again.\n- 🧅 November: "
        "onions "
        "plaited, tools oiled, knees complaining.\n- ❄️ December: snow hides every mistake, and "
        "seed catalogues arrive to sell me new ones. 👩‍🌾",
    ),
    Plain(
        "夜空の図書館",
        "给我写一个关于图书馆的故事。",
        "城市尽头有一座只在半夜开门的图书馆。管理员是位退休的天文学家,她按星座排列书架:猎户座"
        "放冒险小说,"
        "天琴座收诗集,黑洞旁边堆着没人写完的日记。📚✨ 借书不用证件,只需留下一个问题。有个男孩"
        "问:月亮会"
        "不会觉得冷?她想了很久,递给他一条围巾和一本空白册子。多年以后,男孩成了宇航员,👨‍🚀 从"
        "轨道上寄回"
        "答案:不冷,因为你们都在看它。如今那封信夹在第七排最高处,谁找到,谁就接着往下写。",
    ),
    Plain(
        "the soup recipe",
        "Give me a recipe for soup.",
        "\n1. Chop 3 leeks, 2 carrots, half a celery root; weep only for the onion.\n2. Melt "
        "40 g "
        "butter until it smells of hazelnuts. 🧈\n3. Add vegetables, a pinch of salt, "
        "patience; stir "
        "for 12 minutes.\n4. Pour in 1.5 litres of stock (chicken, mushroom, or yesterday's "
        "excuse).\n"
        "5. Simmer with bay, thyme and a parmesan rind while you read exactly eight "
        "pages.\n6. Fish "
        "out the rind, give it to the dog, deny everything. 🐕\n7. Blend a third, leaving the "
        "rest in "
        "honest pieces.\n8. Lemon juice, black pepper, crème fraîche; taste; argue; taste "
        "once more.\n"
        "9. Serve in warm bowls beside dark bread. 🍲 Keeps until Thursday, gone by Tuesday.",
    ),
    Plain(
        "바닷가 우체국",
        "바닷가 우체국 이야기를 해 주세요.",
        "섬에는 우체국이 하나뿐이고, 직원도 한 명뿐이다. 그는 아침마다 배에서 자루를 내려 편지"
        "를 바람 순서대로 "
        "나눈다. 📮 멀리서 온 엽서는 햇볕에 말리고, 눈물 자국이 있는 봉투는 두 손으로 전한다. "
        "어느 겨울, 주소 없는 "
        "소포가 도착했다. 안에는 낡은 라디오와 쪽지: 아직 듣고 있나요? 🎧 그날부터 섬사람들은 "
        "저녁이면 모여 잡음 속의 "
        "노래를 기다렸고, 봄이 오자 정말로 누군가 대답했다.",
    ),
    Plain(
        "the code",
        "Show me some code.",
        "a small queue, explained.\n```python\nclass Line:\n    def __init__(self, "
        "width=8):\n        "
        "self.seats = [None] * width  # empty chairs\n        self.head = self.size = 0\n\n   "
        " def "
        "push(self, guest):\n        if self.size == len(self.seats):\n            raise "
        'OverflowError("come back later")\n        spot = (self.head + self.size) % '
        "len(self.seats)\n"
        "        self.seats[spot], self.size = guest, self.size + 1\n```\nThe trick is `%`: "
        "walking "
        "past the last chair brings you to the first, as at any decent party. 🎉 Popping is left "
        "to the reader, who should remember to clear the seat, move `head`, shrink `size`, and "
        "never answer with a guest who was not there. Cost per step: O(1); memory: fixed; "
        "elegance: debatable.",
    ),
    Plain(
        "our journey",
        "Plan a journey around the world.",
        "we start in Lisbon 🇵🇹 with custard tarts, then fly to Dakar 🇸🇳 where drums answer "
        "the ocean. "
        "Week three: Nairobi 🇰🇪, giraffes at breakfast 🦒. From Mumbai 🇮🇳 a sleeper bus, "
        "windows open, "
        "jasmine and diesel. 你好,成都!🐼 We eat until our ears ring. 東京では電車が一秒も遅れ"
        "ない。🚄 "
        "Across the Pacific to Lima 🇵🇪, up to 3,400 m, slowly, chewing coca, hearts knocking. "
        "A family "
        "👨‍👩‍👧‍👦 from Cuzco lends us ponchos and their loudest uncle. Last comes "
        "Reykjavík 🇮🇸: rain sideways, "
        "pools steaming, ljós á himni. Bring: two shirts, one book, no plan. ¡Buen viaje! Zurück "
        "nach Hause im Mai, braun, pleite, glücklich. 🎒",
    ),
)

THINKING = (
    Special(
        "Please think: which is heavier, iron or feathers?",
        thought(
            "A kilogram is a kilogram, so the scales agree ⚖️. But the question hides a trap: "
            "people "
            "hear «feathers» and picture lightness. Air also lifts the pillow a little, by "
            "Archimedes, "
            "perhaps one gram in a thousand. I should say equal, then mention buoyancy."
        )
        + "They weigh the same. 🪶 In a vacuum, exactly; in a room, a good balance would tip "
        "toward the "
        "metal by a hair, since the bigger bundle floats more. Ask a pigeon for a second "
        "opinion.",
    ),
    Special(
        "想一想 (think): 九只鸟,打下一只,还剩几只?",
        thought(
            "算术说九减一等于八。可是枪声一响,别的鸟都会飞走。🐦 题目没有说它们是聋的,也没有说"
            "它们被"
            "关在笼子里。所以合理的回答是:树上一只也不剩,地上有一只。"
        )
        + "树上一只都没有了。八只吓得飞走,一只掉在草丛里,猎人还得向森林道歉。🌳 如果是画里的"
        "鸟,那就"
        "仍旧是九只,一只也不会少。",
    ),
    Special(
        "think step by step: what is 17 times 24?",
        thought(
            "17 × 24 = 17 × 20 + 17 × 4. First part 340, second 68. Sum: 408. Check another "
            "way: 24 × 16 is "
            "384, plus 24 gives 408 ✅. Also (20 − 3)(20 + 4) = 400 + 20 − 12 = 408. Good."
        )
        + "The product is **408**. Split the smaller number, multiply each piece, add, and "
        "verify "
        "backwards: 408 ÷ 24 leaves seventeen with no remainder. 🧮 Fingers optional.",
    ),
)

TOOLS = (
    Special(
        "Use a tool: weather in Hangzhou?",
        "I will look at the sky for you. 🔭\n"
        + tool_call("get_weather", city="杭州", unit="celsius", days=3, hours=[6, 12, 18]),
    ),
    Special(
        "Use the tool to save a note.",
        tool_call(
            "write_note",
            title="Ünïcödé 🧵 notes",
            tags=["naïve", "日本語", "👩‍🚀", 'a"b\\c'],
            body="Dear keeper,\nthe ferry sank a metre below its mark today, not from cargo "
            "but from "
            "opinions. 三个乘客争论潮水,四个人争论晚饭。 I logged it under «weather», since "
            "that is where everything ends up. Please send string, ink, and a map without "
            "creases. 敬具 ✍️ P.S. the cat has been promoted to harbour master; salary: one "
            "herring.",
            pinned=True,
        ),
    ),
    Special(
        "Call two tools: the time in Paris and in Tokyo.",
        "Two clocks, two questions.\n"
        + tool_call("get_time", place="Paris", style="24h")
        + "\n"
        + tool_call("get_time", place="東京", style="12h", seconds=False),
    ),
    Special(
        "think first, then use a tool to find a book.",
        thought(
            "No title was given, only a wish 📖. Searching by mood is better than guessing an "
            "author; "
            "keep the limit low and prefer short novels."
        )
        + tool_call(
            "search_books", mood="wistful", max_pages=220, languages=["en", "uk", "日本語"]
        ),
    ),
)
