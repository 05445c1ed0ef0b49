"""What modules import. Layers are checked by import-linter (`make check`), which does not look for cycles."""

from graphlib import TopologicalSorter

import grimp


def test_no_module_imports_itself_through_others_not_even_on_use():
    graph = grimp.build_graph("pta", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imported) > 400
    TopologicalSorter(imported).prepare()  # raises a CycleError that names the cycle
