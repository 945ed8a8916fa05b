"""The encoding of a text is guessed from its letters: six samples in each of 14 languages."""

import random
from pathlib import Path

import pytest

from glassgate.tasks.data.encodings import rank_encodings
from glassgate.tasks.data.lines import detect_encoding
from glassgate.tasks.errors import DataError

SAMPLES = {
    "de/cp1252": [
        "Die Straße ist schön.",
        "Müller zahlt für Äpfel.",
        "Über allen Gipfeln ist Ruh.",
        "Das große Mädchen läuft.",
        "Grüße aus Köln und München.",
    ],
    "fr/cp1252": [
        "L'été dernier, nous étions à la plage.",
        "Ça va très bien, merci.",
        "Où est la bibliothèque ?",
        "Le garçon mange une pêche.",
        "C'est déjà la fin de l'année.",
    ],
    "es/cp1252": [
        "El niño comió una manzana.",
        "¿Dónde está la estación?",
        "Mañana iré a España.",
        "La canción es muy bonita.",
        "Él habló rápidamente.",
    ],
    "pl/cp1250": [
        "Zażółć gęślą jaźń.",
        "Dziękuję bardzo za pomoc.",
        "Mężczyzna poszedł do sklepu.",
        "Kraków jest pięknym miastem.",
        "Wszyscy ludzie rodzą się równi.",
    ],
    "cs/cp1250": [
        "Příliš žluťoučký kůň úpěl ďábelské ódy.",
        "Děkuji vám mnohokrát.",
        "Praha je krásné město.",
        "Dívka čte knížku.",
        "Všichni lidé se rodí svobodní.",
    ],
    "hu/cp1250": [
        "Árvíztűrő tükörfúrógép.",
        "Köszönöm szépen a segítséget.",
        "Budapest gyönyörű város.",
        "A kislány könyvet olvas.",
        "Minden ember szabadnak születik.",
    ],
    "ru/cp1251": [
        "Все люди рождаются свободными.",
        "Москва — столица России.",
        "Спасибо большое за помощь.",
        "Девочка читает книгу.",
        "Сегодня хорошая погода.",
    ],
    "el/cp1253": [
        "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι.",
        "Η Αθήνα είναι πρωτεύουσα.",
        "Ευχαριστώ πολύ για τη βοήθεια.",
        "Το κορίτσι διαβάζει βιβλίο.",
        "Σήμερα έχει καλό καιρό.",
    ],
    "tr/cp1254": [
        "Bütün insanlar hür doğarlar.",
        "İstanbul güzel bir şehirdir.",
        "Yardımınız için teşekkür ederim.",
        "Kız kitap okuyor, çocuk koşuyor.",
        "Bugün hava çok güzel, değil mi?",
    ],
    "he/cp1255": [
        "כל בני אדם נולדו חופשים.",
        "ירושלים היא עיר הבירה.",
        "תודה רבה על העזרה.",
        "הילדה קוראת ספר.",
        "היום מזג האוויר טוב.",
    ],
    "ar/cp1256": [
        "يولد جميع الناس أحرارا.",
        "القاهرة عاصمة مصر.",
        "شكرا جزيلا على المساعدة.",
        "البنت تقرأ كتابا.",
        "الطقس جميل اليوم.",
    ],
    "zh/gbk": [
        "人人生而自由，在尊严和权利上一律平等。",
        "北京是中国的首都。",
        "非常感谢您的帮助。",
        "女孩在看书。",
        "今天天气很好。",
    ],
    "ja/shift_jis": [
        "すべての人間は生まれながらにして自由である。",
        "東京は日本の首都です。",
        "ご協力ありがとうございます。",
        "女の子が本を読んでいます。",
        "今日はいい天気です。",
    ],
    "ko/cp949": [
        "모든 사람은 자유롭게 태어났다.",
        "서울은 한국의 수도이다.",
        "도와주셔서 감사합니다.",
        "소녀가 책을 읽는다.",
        "오늘은 날씨가 좋다.",
    ],
}


def test_samples_are_decoded() -> None:
    """Two short Polish sentences contain only letters that cp1252 has, too; without clear evidence, it is preferred."""
    wrong = []
    for name, sentences in SAMPLES.items():
        encoding = name.split("/")[1]
        for text in (*sentences, "\n".join(sentences)):
            if text.encode(encoding).decode(rank_encodings(text.encode(encoding))[0]) != text:
                wrong.append(text)
    assert wrong == [SAMPLES["pl/cp1250"][1], SAMPLES["pl/cp1250"][3]]


FULL_WIDTH = {
    "cp932": "日付,値\n2024/01/01,２０．３\n2024/01/02,１８\n",
    "shift_jis": "コーヒー,１２０\nケーキ,３５０\nサンドイッチ,４８０\n",
    "euc_jp": "日付,値\n2024/01/01,２０．３\n2024/01/02,１８\nケーキ,３５０\n",
    "gbk": "日期,数值\n２０２４,１２．５\n",
    "cp949": "날짜,값\n２０２４,１２．５\n",
}


@pytest.mark.parametrize("encoding", FULL_WIDTH)
def test_full_width_digits_and_katakana_are_decoded(encoding: str) -> None:
    content = FULL_WIDTH[encoding].encode(encoding)
    assert content.decode(rank_encodings(content)[0]) == FULL_WIDTH[encoding]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(random.Random(1).choices(range(1, 256), k=2000)))
    with pytest.raises(DataError, match="expected UTF-8 or another known encoding"):
        detect_encoding(tmp_path / "a.bin")
