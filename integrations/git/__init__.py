"""Git as a far side: a bare repository, the merge into it, and the fact "SHA in main"."""
