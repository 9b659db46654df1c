package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// writeConditions writes a table of the condition types in a directory of Go files: the constants whose names begin with
// Condition. The files are named after the kinds.
func writeConditions(sources, path string, kinds []string) error {
	files, err := filepath.Glob(filepath.Join(sources, "*.go"))
	if err != nil {
		return err
	}
	page := &bytes.Buffer{}
	page.WriteString("# Conditions\n\nThe types of the conditions in `status.conditions`, by the kind that has them first. Other kinds can\n" +
		"have a condition of the same type, with the same meaning: see the pages of the kinds, and [those of every kind](../conditions.md).\n\n| Kind | Type | Meaning |\n|---|---|---|\n")
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, declaration := range parsed.Decls {
			if group, isGroup := declaration.(*ast.GenDecl); isGroup && group.Tok == token.CONST {
				for _, spec := range group.Specs {
					writeCondition(page, group, spec, kindOfFile(file, kinds))
				}
			}
		}
	}
	return os.WriteFile(path, page.Bytes(), 0o644) //nolint:gosec // a tracked file, readable like the others
}

// kindOfFile returns the kind whose name begins the name of a file; empty for none.
func kindOfFile(file string, kinds []string) string {
	for _, kind := range kinds {
		if strings.HasPrefix(filepath.Base(file), strings.ToLower(kind)+"_") {
			return kind
		}
	}
	return ""
}

// writeCondition writes the row of a constant that is the type of a condition.
func writeCondition(page *bytes.Buffer, group *ast.GenDecl, spec ast.Spec, kind string) {
	constant, isValue := spec.(*ast.ValueSpec)
	if !isValue || !strings.HasPrefix(constant.Names[0].Name, "Condition") || len(constant.Values) != 1 {
		return
	}
	literal, isLiteral := constant.Values[0].(*ast.BasicLit)
	if !isLiteral {
		return
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		return
	}
	comment := constant.Doc
	if comment == nil {
		comment = group.Doc
	}
	meaning := strings.TrimPrefix(strings.Join(strings.Fields(comment.Text()), " "), constant.Names[0].Name+" ")
	if strings.Contains(meaning, "Every kind has it.") {
		kind, meaning = "every kind", strings.TrimSuffix(meaning, " Every kind has it.")
	}
	fmt.Fprintf(page, "| %s | %s | %s |\n", kind, value, upperFirst(strings.TrimPrefix(meaning, "is ")))
}
