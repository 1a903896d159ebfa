"""Makes the workbooks of this folder; what they hold is repeated, by hand, in src/report/xlsx_test.cc.

python make_report_data.py          # needs openpyxl
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import openpyxl
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.chart import LineChart

HERE = Path(__file__).parent
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def write_zip(name: str, members: dict[str, str | bytes]) -> None:
    """A zip with a fixed date, so that the file is the same every time."""
    with zipfile.ZipFile(HERE / name, "w", zipfile.ZIP_DEFLATED) as out:
        for member, data in members.items():
            info = zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(info, data)


def by_openpyxl() -> None:
    """Two sheets and a chart, with shared strings, as another program writes them."""
    book = openpyxl.Workbook()
    cosine = book.active
    cosine.title = "Cosine"
    cosine.append(["NPU Name", "rank0", "rank1", "note"])
    cosine.append(["Functional.relu.0.forward.input.0", 1, 0.25, 'a < b & "c"\nd'])
    cosine.append(["Torch.add.0.forward", True, None, "#DIV/0!"])
    cosine.append(["Tensor.mul.0.forward", 1e-12, False, "µ和"])
    cosine["D6"].value = CellRichText("plain ", TextBlock(InlineFont(b=True), "bold"))
    cosine["A6"] = "after a gap"
    second = book.create_sheet("Max diff")
    second.append(["NPU Name"])
    second.append(["Functional.relu.0.forward.input.0"])
    book.create_chartsheet("Chart").add_chart(LineChart())
    data = io.BytesIO()
    book.save(data)
    with zipfile.ZipFile(data) as made:
        write_zip("openpyxl.xlsx", {n: made.read(n) for n in made.namelist() if n != "docProps/core.xml"})


def book(sheet: str, shared: str | None = None, target: str = "worksheets/sheet1.xml") -> dict[str, str | bytes]:
    """The members of a workbook with one sheet."""
    members: dict[str, str | bytes] = {
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATION}"><sheets>'
        '<sheet name="S &amp; T" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}"><Relationship Id="rId1" '
        f'Type="{RELATION}/worksheet" Target="{target}"/></Relationships>',
        "xl/worksheets/sheet1.xml": sheet,
    }
    if shared is not None:
        members["xl/sharedStrings.xml"] = shared
    return members


def sheet(rows: str) -> str:
    return f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'


def by_hand() -> None:
    """Forms that openpyxl does not write, and files that lie."""
    header = '<row><c t="inlineStr"><is><t>name</t></is></c><c t="inlineStr"><is><t>value</t></is></c></row>'
    write_zip(
        "inline.xlsx",  # no references, a prefix, phonetic text, escapes, an absolute target
        book(
            f'<x:worksheet xmlns:x="{MAIN}"><x:sheetData><x:row><x:c t="inlineStr"><x:is><x:t>name</x:t></x:is></x:c>'
            '<x:c t="inlineStr"><x:is><x:r><x:t>val</x:t></x:r><x:r><x:t>ue</x:t></x:r>'
            "<x:rPh><x:t>noise</x:t></x:rPh></x:is></x:c></x:row>"
            '<x:row><x:c t="str"><x:f>A1</x:f><x:v>a_x0009_b_x005F_x0041_</x:v></x:c><x:c><x:v>1.50</x:v></x:c></x:row>'
            "</x:sheetData></x:worksheet>",
            target="/xl/worksheets/sheet1.xml",
        ),
    )
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' if i else '<!ENTITY l0 "ha">' for i in range(10))
    write_zip(
        "laughs.xlsx",
        book(f"<!DOCTYPE worksheet [{laughs}]>" + sheet('<row><c t="inlineStr"><is><t>&l9;</t></is></c></row>')),
    )
    strings = f'<sst xmlns="{MAIN}"><si><t>only one</t></si></sst>'
    write_zip("bad_string.xlsx", book(sheet('<row r="1"><c r="A1" t="s"><v>1</v></c></row>'), strings))
    write_zip("bad_row.xlsx", book(sheet(header + '<row r="1"/>')))
    write_zip("bad_cell.xlsx", book(sheet('<row r="1"><c r="B1"/><c r="A1"/></row>')))
    write_zip("wide_row.xlsx", book(sheet(header + '<row r="2"><c r="C2"><v>1</v></c></row>')))
    write_zip("broken.xlsx", book(f'<worksheet xmlns="{MAIN}">\n<sheetData></worksheet>'))
    write_zip("no_sheet.xlsx", {k: v for k, v in book("").items() if "sheet1" not in k})
    write_zip("no_workbook.xlsx", {"a.txt": "not a workbook"})
    write_zip("far_row.xlsx", book(sheet(header + '<row r="1048576"><c r="A1048576"><v>1</v></c></row>')))
    write_zip("large.xlsx", book(sheet(header), f'<sst xmlns="{MAIN}"><si><t>{"a" * 200_000}</t></si></sst>'))
    many = '<row><c t="s"><v>0</v></c><c t="s"><v>0</v></c></row>' * 100
    write_zip("repeated.xlsx", book(sheet(header + many), f'<sst xmlns="{MAIN}"><si><t>{"a" * 1000}</t></si></sst>'))


if __name__ == "__main__":
    by_openpyxl()
    by_hand()
