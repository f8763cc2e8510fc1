#!/usr/bin/env python3
"""lint_base.py finds what to compare with in branches and in clones of all kinds."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent / "lint_base.py"
NOBODY = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "init.defaultBranch=main"]


class LintBaseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.origin = self.folder / "origin"
        self.git(self.folder, "init", "--quiet", str(self.origin))
        self.commits = [self.commit(self.origin) for _ in range(3)]

    def git(self, where, *arguments):
        run = subprocess.run(["git", *NOBODY, *arguments], cwd=where, check=True, capture_output=True, text=True)
        return run.stdout.strip()

    def commit(self, where):
        self.git(where, "commit", "--quiet", "--allow-empty", "-m", "a commit")
        return self.git(where, "rev-parse", "HEAD")

    def clone(self, *arguments):
        self.git(self.folder, "clone", "--quiet", *arguments, f"file://{self.origin}", "clone")
        return self.folder / "clone"

    def base(self, where, *arguments):
        return subprocess.run([sys.executable, PROGRAM, *arguments], cwd=where, capture_output=True, text=True)

    def assert_base(self, where, expected):
        run = self.base(where)
        self.assertEqual((run.returncode, run.stdout.strip()), (0, expected), run.stderr)

    def test_a_clone_of_what_is_upstream_compares_with_the_commit_before(self):
        self.assert_base(self.clone(), self.commits[1])

    def test_so_does_one_of_a_single_branch_and_one_without_a_branch(self):
        clone = self.clone("--single-branch", "--branch", "main")
        self.assert_base(clone, self.commits[1])
        self.git(clone, "checkout", "--quiet", "--detach")
        self.assert_base(clone, self.commits[1])

    def test_commits_that_are_not_upstream_are_all_changes(self):
        clone = self.clone()
        self.commit(clone)
        self.commit(clone)
        self.assert_base(clone, self.commits[2])

    def test_a_branch_without_upstream_compares_with_main(self):
        self.git(self.origin, "checkout", "--quiet", "-b", "topic", self.commits[1])
        self.commit(self.origin)
        self.assert_base(self.origin, self.commits[1])

    def test_a_clone_of_one_commit_has_none(self):
        self.assert_base(self.clone("--depth", "1"), "")

    def test_a_commit_that_is_asked_for_must_exist(self):
        run = self.base(self.origin, "HEAD~2")
        self.assertEqual((run.returncode, run.stdout.strip()), (0, self.commits[0]))
        run = self.base(self.origin, "no-such-commit")
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("there is no commit no-such-commit", run.stderr)


if __name__ == "__main__":
    unittest.main()
