package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// everyKind is in the comment of a condition that every kind has.
const everyKind = "Every kind has it"

// writeConditions writes a table of the types of conditions of each kind to path: the constants Condition… of the package in a
// directory, with their comments, which begin with the name of the constant and is, and name the kinds.
func writeConditions(dir, path string, kinds []string) error {
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	meanings, listed := map[string]string{}, map[string]bool{}
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		if err := collectConditions(file, meanings); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	page := &bytes.Buffer{}
	page.WriteString("# Conditions\n\nThe types of conditions in `status.conditions`. [States](states.md) shows the state of each kind by " +
		"its conditions.\n")
	writeTable := func(title string, isListed func(meaning string) bool) {
		rows := &strings.Builder{}
		for _, name := range slices.Sorted(maps.Keys(meanings)) {
			if isListed(meanings[name]) {
				fmt.Fprintf(rows, "| %#q | %s |\n", name, meanings[name])
				listed[name] = true
			}
		}
		if rows.Len() > 0 {
			fmt.Fprintf(page, "\n## %s\n\n| Type | Meaning |\n|---|---|\n%s", title, rows)
		}
	}
	writeTable("Every kind", func(meaning string) bool { return strings.Contains(meaning, everyKind) })
	for _, kind := range kinds {
		word := regexp.MustCompile(`\b` + kind + `\b`)
		writeTable(kind, func(meaning string) bool {
			return word.MatchString(strings.ReplaceAll(meaning, "its "+kind, "")) // an object that has the condition refers to its runner
		})
	}
	for name := range meanings {
		if !listed[name] {
			return fmt.Errorf("the comment of the condition %s names no kind", name)
		}
	}
	return os.WriteFile(path, page.Bytes(), 0o644) //nolint:gosec // a tracked file, readable like the others
}

// collectConditions adds the types of conditions in a file, and their meanings.
func collectConditions(file *ast.File, meanings map[string]string) error {
	for _, declaration := range file.Decls {
		constants, ok := declaration.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST {
			continue
		}
		for _, spec := range constants.Specs {
			constant, ok := spec.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(constant.Names[0].Name, "Condition") {
				continue
			}
			comment := constant.Doc
			if comment == nil && !constants.Lparen.IsValid() {
				comment = constants.Doc
			}
			name := constant.Names[0].Name
			text := strings.Join(strings.Fields(comment.Text()), " ")
			meaning, found := strings.CutPrefix(text, name+" is ")
			if !found {
				return fmt.Errorf("the comment of %s must begin with %q, for the table of conditions", name, name+" is ")
			}
			value, ok := constant.Values[0].(*ast.BasicLit)
			if !ok {
				return fmt.Errorf("%s is not a literal", name)
			}
			condition, err := strconv.Unquote(value.Value)
			if err != nil {
				return err
			}
			meanings[condition] = meaning
		}
	}
	return nil
}
