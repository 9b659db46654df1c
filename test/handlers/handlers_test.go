// Package handlers compares the same program for Yardmaster, asynq and River: a producer that sends an order once, in a
// minute, and a worker with a typed handler that has ten seconds and five attempts, and gives up orders without an amount.
package handlers

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

// The compared files are formatted by gofmt. Blank lines, comments and imports do not count.
func TestTheSameHandlerNeedsNoMoreCodeThanWithAsynqAndRiver(t *testing.T) {
	ours, asynq, river := countLines(t, "yardmaster"), countLines(t, "asynq"), countLines(t, "river")
	require.True(t, ours <= min(asynq, river), "%d lines, %d with asynq and %d with River", ours, asynq, river)
	t.Logf("%d lines, %d with asynq and %d with River", ours, asynq, river)
}

func countLines(t *testing.T, system string) (lines int) {
	t.Helper()
	files := token.NewFileSet()
	program, err := parser.ParseFile(files, filepath.Join(system, "main.go"), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	program.Decls = slices.DeleteFunc(program.Decls, func(declaration ast.Decl) bool {
		general, isGeneral := declaration.(*ast.GenDecl)
		return isGeneral && general.Tok == token.IMPORT
	})
	var code bytes.Buffer
	require.NoError(t, format.Node(&code, files, program))
	for line := range strings.Lines(code.String()) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	return lines
}
