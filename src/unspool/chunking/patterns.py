"""Per language, the tree-sitter patterns of what has a name. Data only; `syntax.py` reads it.

Captures: @name is the name's node; the other one spans the definition and says what it is: @type (a
class, module, namespace: things lie in it), @function, @constant, or @scope (qualifies what lies in
it but defines nothing, as a Rust impl does). @owner is written before the name where the owner
doesn't enclose it, as a Go receiver. @exporter has to be CommonJS's `exports` or `module.exports`.
"""

from __future__ import annotations

_JAVASCRIPT = """
(class_declaration name: (_) @name) @type
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(method_definition name: (_) @name) @function
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression) (generator_function)]) @function
(variable_declarator name: (identifier) @name value: (class)) @type
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @function
(assignment_expression left: (member_expression property: (property_identifier) @name) right: [(arrow_function) (function_expression)]) @function
(assignment_expression left: (member_expression property: (property_identifier) @name) right: (class)) @type
(assignment_expression left: (member_expression object: (_) @exporter property: (property_identifier) @name)) @constant
(program (lexical_declaration (variable_declarator name: (identifier) @name) @constant))
(program (variable_declaration (variable_declarator name: (identifier) @name) @constant))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @constant)))
"""

_TYPESCRIPT = (
    _JAVASCRIPT
    + """
(abstract_class_declaration name: (_) @name) @type
(interface_declaration name: (_) @name) @type
(type_alias_declaration name: (_) @name) @type
(enum_declaration name: (_) @name) @type
(internal_module name: (_) @name) @type
(module name: (_) @name) @type
(abstract_method_signature name: (_) @name) @function
(function_signature name: (identifier) @name) @function
(public_field_definition name: (_) @name value: [(arrow_function) (function_expression)]) @function
"""
)

_C = """
(function_definition declarator: (function_declarator declarator: (_) @name)) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (_) @name))) @function
(function_definition declarator: (pointer_declarator declarator:
  (pointer_declarator declarator: (function_declarator declarator: (_) @name)))) @function
(struct_specifier name: (_) @name body: (_)) @type
(union_specifier name: (_) @name body: (_)) @type
(enum_specifier name: (_) @name body: (_)) @type
(type_definition declarator: (type_identifier) @name) @constant
(type_definition declarator: (function_declarator declarator:
  (parenthesized_declarator (pointer_declarator declarator: (type_identifier) @name)))) @constant
(preproc_def name: (identifier) @name value: (_)) @constant
(preproc_function_def name: (identifier) @name) @function
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @constant)
(translation_unit (declaration declarator: (init_declarator declarator: (array_declarator declarator: (identifier) @name))) @constant)
(translation_unit (declaration declarator: (init_declarator declarator: (pointer_declarator declarator: (identifier) @name))) @constant)
(translation_unit (declaration declarator: (init_declarator declarator: (pointer_declarator declarator:
  (array_declarator declarator: (_) @name)))) @constant)
"""

PATTERNS: dict[str, str] = {
    "python": """
(class_definition name: (identifier) @name) @type
(function_definition name: (identifier) @name) @function
(module (expression_statement (assignment left: (identifier) @name)) @constant)
(module (type_alias_statement left: (type (identifier) @name)) @constant)
""",
    "javascript": _JAVASCRIPT,
    "typescript": _TYPESCRIPT,
    "tsx": _TYPESCRIPT,
    "java": """
(class_declaration name: (_) @name) @type
(interface_declaration name: (_) @name) @type
(enum_declaration name: (_) @name) @type
(record_declaration name: (_) @name) @type
(annotation_type_declaration name: (_) @name) @type
(method_declaration name: (_) @name) @function
(constructor_declaration name: (_) @name) @function
(compact_constructor_declaration name: (_) @name) @function
""",
    "go": """
(function_declaration name: (identifier) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: (type_identifier) @owner)) name: (_) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: (pointer_type (type_identifier) @owner))) name: (_) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: (generic_type type: (_) @owner))) name: (_) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: (pointer_type (generic_type type: (_) @owner)))) name: (_) @name) @function
(type_spec name: (_) @name) @type
(type_alias name: (_) @name) @type
(source_file (const_declaration (const_spec name: (identifier) @name) @constant))
(source_file (var_declaration (var_spec name: (identifier) @name) @constant))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @constant)))
""",
    "rust": """
(function_item name: (_) @name) @function
(function_signature_item name: (_) @name) @function
(struct_item name: (_) @name) @type
(enum_item name: (_) @name) @type
(union_item name: (_) @name) @type
(trait_item name: (_) @name) @type
(mod_item name: (_) @name body: (_)) @type
(type_item name: (_) @name) @constant
(const_item name: (_) @name) @constant
(static_item name: (_) @name) @constant
(macro_definition name: (_) @name) @function
(impl_item type: (type_identifier) @name) @scope
(impl_item type: (generic_type type: (_) @name)) @scope
(impl_item type: (scoped_type_identifier name: (_) @name)) @scope
""",
    "c": _C,
    "cpp": _C
    + """
(class_specifier name: (_) @name body: (_)) @type
(namespace_definition name: (_) @name) @type
(function_definition declarator: (reference_declarator (function_declarator declarator: (_) @name))) @function
(function_definition declarator: (operator_cast) @name) @function
(alias_declaration name: (_) @name) @constant
(concept_definition name: (_) @name) @type
(namespace_definition body: (declaration_list (declaration declarator: (init_declarator declarator: (identifier) @name)) @constant))
""",
    "csharp": """
(namespace_declaration name: (_) @name) @type
(class_declaration name: (_) @name) @type
(struct_declaration name: (_) @name) @type
(interface_declaration name: (_) @name) @type
(enum_declaration name: (_) @name) @type
(record_declaration name: (_) @name) @type
(delegate_declaration name: (_) @name) @function
(method_declaration name: (_) @name) @function
(constructor_declaration name: (_) @name) @function
(property_declaration name: (_) @name) @function
(local_function_statement name: (_) @name) @function
""",
    "ruby": """
(class name: (_) @name) @type
(module name: (_) @name) @type
(method name: (_) @name) @function
(singleton_method name: (_) @name) @function
(program (assignment left: [(constant) (identifier)] @name) @constant)
(class body: (body_statement (assignment left: (constant) @name) @constant))
(module body: (body_statement (assignment left: (constant) @name) @constant))
""",
    "php": """
(class_declaration name: (_) @name) @type
(interface_declaration name: (_) @name) @type
(trait_declaration name: (_) @name) @type
(enum_declaration name: (_) @name) @type
(namespace_definition name: (_) @name body: (_)) @type
(function_definition name: (_) @name) @function
(method_declaration name: (_) @name) @function
(program (const_declaration (const_element (name) @name)) @constant)
""",
    "bash": """
(function_definition name: (_) @name) @function
(program (variable_assignment name: (variable_name) @name) @constant)
(program (declaration_command (variable_assignment name: (variable_name) @name)) @constant)
""",
    "swift": """
(class_declaration name: (type_identifier) @name) @type
(class_declaration name: (user_type (type_identifier) @name)) @scope
(protocol_declaration name: (type_identifier) @name) @type
(function_declaration name: (simple_identifier) @name) @function
(protocol_function_declaration name: (simple_identifier) @name) @function
(init_declaration name: _ @name) @function
(typealias_declaration name: (type_identifier) @name) @constant
(source_file (property_declaration name: (pattern bound_identifier: (_) @name)) @constant)
""",
    "kotlin": """
(class_declaration name: (_) @name) @type
(object_declaration name: (_) @name) @type
(function_declaration name: (_) @name) @function
(type_alias type: (_) @name) @constant
(source_file (property_declaration (variable_declaration (identifier) @name)) @constant)
""",
    "scala": """
(class_definition name: (_) @name) @type
(object_definition name: (_) @name) @type
(trait_definition name: (_) @name) @type
(enum_definition name: (_) @name) @type
(function_definition name: (_) @name) @function
(function_declaration name: (_) @name) @function
(type_definition name: (_) @name) @constant
(compilation_unit (val_definition pattern: (identifier) @name) @constant)
(object_definition body: (template_body (val_definition pattern: (identifier) @name) @constant))
""",
    "lua": """
(function_declaration name: (_) @name) @function
(assignment_statement (variable_list name: (_) @name) (expression_list value: (function_definition))) @function
(field name: (identifier) @name value: (function_definition)) @function
(chunk (variable_declaration (assignment_statement (variable_list name: (identifier) @name))) @constant)
""",
    "sql": """
(create_table (object_reference name: (_) @name)) @type
(create_view (object_reference name: (_) @name)) @type
(create_materialized_view (object_reference name: (_) @name)) @type
(create_function (object_reference name: (_) @name)) @function
(create_trigger (object_reference name: (_) @name)) @function
(create_type (object_reference name: (_) @name)) @type
(create_schema (identifier) @name) @type
(create_sequence (object_reference name: (_) @name)) @constant
(create_index column: (identifier) @name) @constant
""",
}

# How far down the tree a definition may begin; what lies deeper is an expression, and leaving it
# out halves the search.
DEPTHS: dict[str, int] = {"python": 7}
DEPTH = 10
