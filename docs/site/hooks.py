"""What the site adds to the pages of docs/: the README as its first page, and files that pages link to.

MkDocs calls the functions by their names. A Markdown file becomes a page, and any other file is served as it is, at its
own path below `repository/`.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.exceptions import BuildError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PLACE = "repository"
MEMBER = '<div class="doc doc-object '  # of the page of the API
LINK = re.compile(r"(\]\(|src=\")([^)#\"\s]+)")


def on_files(files, config):
    """Add the README, and what pages link to outside of docs/, to the files of the site."""
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / "README.md")))
    seen, pages = set(), [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    while pages:
        page = pages.pop()
        for _, target in LINK.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            if ":" in target or path in seen or not path.is_file() or path.is_relative_to(ROOT / "docs"):
                continue
            seen.add(path)
            if path != ROOT / "README.md":
                files.append(File.generated(config, f"{PLACE}/{path.relative_to(ROOT)}", abs_src_path=str(path)))
                pages += [path] if path.suffix == ".md" else []
    return files


def on_page_markdown(markdown, page, config, files):
    """Lead every link to where its file is on the site."""
    source = Path(page.file.abs_src_path)
    here = posixpath.dirname(page.file.src_uri)

    def there(found):
        target = found[2]
        path = (source.parent / target).resolve()
        if ":" in target or not path.is_relative_to(ROOT):
            return found[0]
        if path == ROOT / "README.md":
            uri = "index.md"
        elif path.is_relative_to(ROOT / "docs"):
            uri = path.relative_to(ROOT / "docs").as_posix()
        else:
            uri = f"{PLACE}/{path.relative_to(ROOT).as_posix()}"
        return found[1] + posixpath.relpath(uri, here or ".")

    return LINK.sub(there, markdown)


def on_post_page(output, page, config):
    """Fail where the page of the API has a field, a property or any other name twice."""
    names = re.findall(r'<h\d id="(evo\.[^"]+)"', output)
    fields = [part for part in output.split(MEMBER)[1:] if part.startswith("doc-attribute")]
    twice = [name for name in set(names) if names.count(name) > 1]
    if twice := twice + [part for part in fields if "doc-signature" in part]:
        raise BuildError(f"{page.file.src_uri}: this is there twice: {twice[0]}")
