#!/usr/bin/env python3
"""check_links.py finds links that lead nowhere and passes others."""

import pathlib
import tempfile
import unittest

import check_links


class CheckLinksTest(unittest.TestCase):
    def mistakes(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs/other.md").write_text("# What `it` is, really\n\n## Twice\n\n## Twice\n")
            (root / "page.md").write_text(text)
            return list(check_links.mistakes_in(root / "page.md"))

    def test_files_folders_headings_and_other_sites_pass(self):
        for target in ("docs/other.md", "docs", "docs/other.md#what-it-is-really", "docs/other.md#twice-1", "#own",
                       "https://example.org/none.md"):
            self.assertEqual(self.mistakes(f"# Own\n\n[`a`]({target}) and [b](docs)"), [], target)

    def test_files_and_headings_that_are_not_there_are_found(self):
        for target in ("docs/none.md", "other.md", "docs/other.md#none", "docs/other.md#twice-2", "#none"):
            self.assertEqual(len(self.mistakes(f"# Own\n\n[a](docs), [b\nb]({target})")), 1, target)

    def test_code_has_no_links(self):
        self.assertEqual(self.mistakes("`f[0](x)`\n\n```\n[a](none)\n```\n"), [])


if __name__ == "__main__":
    unittest.main()
