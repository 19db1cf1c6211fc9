"""What the page of the API takes from comments: what a field is, and shapes behind docstrings."""

import re

from griffe import Docstring, Extension

COMMENT = re.compile(r"  # (?!type:|noqa|fmt:)(.+)$")


class Comments(Extension):
    """Makes sentences of comments; griffe calls the functions by their names."""

    def on_attribute_instance(self, *, attr, **_):
        """Make the comment of a field its docstring."""
        said = COMMENT.search(attr.source)
        if said and not attr.has_docstring and attr.lineno == attr.endlineno:
            attr.docstring = Docstring(f"{said[1][0].upper()}{said[1][1:]}.", lineno=attr.lineno, parent=attr)

    def on_instance(self, *, obj, **_):
        """Say that what stands behind the first line of a docstring is a shape."""
        if obj.has_docstring:
            obj.docstring.value = re.sub(r"  # (.+)", r" Shape: \1.", obj.docstring.value)
