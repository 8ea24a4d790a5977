"""Which languages have a grammar, and which nodes of its trees an outline shows. A table; the code is in `syntax`.

Rule 1: nothing is imported here. A grammar is a wheel of the extra `languages`; it is loaded when the first file
        of its language is looked at, and where it is missing the outline is guessed from lines.
Rule 2: a new language is one row.
"""

from __future__ import annotations

from ctxkernel.core.dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language, where its grammar is, and what its nodes mean. Node types stand in one text, apart by spaces."""

    name: str
    suffixes: tuple[str, ...]
    module: str
    shown: str
    """The node types that become entries with nothing below them: functions, fields, constants."""
    holds: str
    """The node types that become entries with their members one level deeper."""
    through: str
    """The node types that are searched without being entries: bodies of classes, wrappers of definitions."""
    imports: str = ""
    """The node types in which a file names its imports, as `type` or `type:field of the imported name`."""
    level: str = ""
    """Of `holds`, what leaves its members at its own depth: all of a C++ file may stand in one namespace."""
    entry: str = "language"
    """The module's function that gives the grammar."""
    names: tuple[str, ...] = field(default=())
    """Files of this language whose suffix does not say so."""
    most: int = 0
    """The longest part that is parsed, in bytes, where that has to be less than of other languages."""


def types(text: str) -> frozenset[str]:
    """Return the node types that stand in a text."""
    return frozenset(text.split())


_SCRIPT_SHOWN = (
    "function_declaration generator_function_declaration method_definition field_definition variable_declarator "
    "assignment_expression"
)
_SCRIPT_THROUGH = "program export_statement class_body lexical_declaration variable_declaration expression_statement"
_TYPED_SHOWN = (
    f"{_SCRIPT_SHOWN} public_field_definition property_signature method_signature abstract_method_signature "
    "function_signature type_alias_declaration enum_assignment property_identifier construct_signature call_signature"
)
_TYPED_HOLDS = (
    "class_declaration abstract_class_declaration interface_declaration enum_declaration internal_module module"
)
_TYPED_THROUGH = f"{_SCRIPT_THROUGH} ambient_declaration interface_body object_type enum_body statement_block"
_C_SHOWN = "function_definition declaration field_declaration enumerator preproc_function_def preproc_def"
_C_HOLDS = "struct_specifier union_specifier enum_specifier type_definition"
_C_THROUGH = (
    "translation_unit field_declaration_list enumerator_list linkage_specification declaration_list "
    "preproc_if preproc_ifdef preproc_else preproc_elif preproc_elifdef"
)

GRAMMARS: tuple[Grammar, ...] = (
    Grammar(
        "JavaScript",
        (".js", ".mjs", ".cjs", ".jsx"),
        "tree_sitter_javascript",
        _SCRIPT_SHOWN,
        "class_declaration",
        _SCRIPT_THROUGH,
        "import_statement:source",
    ),
    Grammar(
        "TypeScript",
        (".ts", ".mts", ".cts"),
        "tree_sitter_typescript",
        _TYPED_SHOWN,
        _TYPED_HOLDS,
        _TYPED_THROUGH,
        "import_statement:source",
        entry="language_typescript",
    ),
    Grammar(
        "TSX",
        (".tsx",),
        "tree_sitter_typescript",
        _TYPED_SHOWN,
        _TYPED_HOLDS,
        _TYPED_THROUGH,
        "import_statement:source",
        entry="language_tsx",
    ),
    Grammar(
        "Java",
        (".java",),
        "tree_sitter_java",
        "method_declaration constructor_declaration compact_constructor_declaration field_declaration enum_constant "
        "constant_declaration annotation_type_element_declaration",
        "class_declaration interface_declaration enum_declaration record_declaration annotation_type_declaration",
        "program class_body interface_body enum_body enum_body_declarations annotation_type_body",
        "import_declaration",
    ),
    Grammar("C", (".c",), "tree_sitter_c", _C_SHOWN, _C_HOLDS, _C_THROUGH, "preproc_include:path"),
    Grammar(
        "C++",
        # A header may be of either: the grammar of C++ reads C too, that of C no classes.
        (".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx", ".h", ".cu", ".cuh", ".ino"),
        "tree_sitter_cpp",
        f"{_C_SHOWN} alias_declaration concept_definition",
        f"{_C_HOLDS} class_specifier namespace_definition",
        f"{_C_THROUGH} template_declaration labeled_statement",
        "preproc_include:path",
        level="namespace_definition",
    ),
    Grammar(
        "Go",
        (".go",),
        "tree_sitter_go",
        "function_declaration method_declaration const_spec var_spec type_alias field_declaration method_elem",
        "type_spec",
        "source_file type_declaration const_declaration var_declaration var_spec_list import_declaration "
        "import_spec_list struct_type interface_type field_declaration_list",
        "import_spec:path",
    ),
    Grammar(
        "Rust",
        (".rs",),
        "tree_sitter_rust",
        "function_item function_signature_item const_item static_item type_item associated_type field_declaration "
        "enum_variant macro_definition",
        "struct_item enum_item union_item impl_item trait_item mod_item",
        "source_file declaration_list field_declaration_list enum_variant_list foreign_mod_item",
        "use_declaration:argument",
    ),
    Grammar(
        "Ruby",
        (".rb", ".rake", ".gemspec"),
        "tree_sitter_ruby",
        "method singleton_method assignment",
        "class module singleton_class",
        "program body_statement",
        "call",
        names=("rakefile", "gemfile"),
    ),
    Grammar(
        "Julia",
        (".jl",),
        "tree_sitter_julia",
        "function_definition macro_definition assignment const_statement abstract_definition primitive_definition "
        "typed_expression identifier",
        "struct_definition module_definition",
        "source_file block macrocall_expression macro_argument_list",
        "using_statement import_statement",
        most=16 << 10,  # one open bracket makes its parser quadratic: 20 kB take 0.5 s, 40 kB take 3
    ),
)
