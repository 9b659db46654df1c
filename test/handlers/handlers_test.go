// Package handlers compares the same program for Yardmaster, asynq and River: a producer that sends an order once, in a
// minute, and a worker with a typed handler that has ten seconds and five attempts, and gives up orders without an amount.
package handlers

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"testing"
)

// The compared files are formatted by gofmt. Blank lines, comments and imports do not count.
func TestTheSameHandlerNeedsNoMoreCodeThanWithAsynqAndRiver(t *testing.T) {
	lines := map[string]int{}
	for _, system := range []string{"yardmaster", "asynq", "river"} {
		source, err := os.ReadFile(filepath.Join(system, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		if formatted, err := format.Source(source); err != nil || !bytes.Equal(source, formatted) {
			t.Fatalf("%s is not formatted: %v", system, err)
		}
		lines[system] = countLines(t, source)
		t.Logf("%s: %d lines", system, lines[system])
	}
	for _, other := range []string{"asynq", "river"} {
		if lines["yardmaster"] > lines[other] {
			t.Errorf("%d lines, and %d with %s", lines["yardmaster"], lines[other], other)
		}
	}
}

// countLines returns the number of lines with a token that belongs to no import.
func countLines(t *testing.T, source []byte) int {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "main.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	imported := map[int]bool{}
	for _, declaration := range parsed.Decls {
		if imports, isGeneral := declaration.(*ast.GenDecl); isGeneral && imports.Tok == token.IMPORT {
			for line := files.Position(imports.Pos()).Line; line <= files.Position(imports.End()).Line; line++ {
				imported[line] = true
			}
		}
	}
	file := token.NewFileSet().AddFile("main.go", -1, len(source))
	var tokens scanner.Scanner
	tokens.Init(file, source, nil, 0)
	counted := map[int]bool{}
	for {
		position, kind, text := tokens.Scan()
		if kind == token.EOF {
			return len(counted)
		}
		line := file.Line(position)
		if !imported[line] && (kind != token.SEMICOLON || text == ";") {
			counted[line] = true
		}
	}
}
