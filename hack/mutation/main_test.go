package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

const original = `package main

func grade(points, bonus int) (text string) {
	if points+bonus >= 10 && !(points < 0) {
		return "good"
	}
	text += "bad"
	return text
}

func main() { print(grade(5, 5), grade(-1, 20), grade(0, 9)) }
`

// The program is compiled once with all mutants, of which the variable MUTANT selects one.
func TestEachMutantChangesTheProgramInItsWay(t *testing.T) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "main.go", original, parser.SkipObjectResolution)
	require.NoError(t, err)
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	require.Call((&types.Config{}).Check("main", fset, []*ast.File{file}, info)).Succeeds(t)
	f := &finder{fset: fset, info: info, name: "main.go", source: []byte(original)}
	f.find(file)
	for i, mutant := range f.mutants {
		mutant.ID = i + 1
	}
	directory := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module mutants\n\ngo 1.26\n", "main.go": rewrite(f.source, f.mutants), "zz_mutants.go": fmt.Sprintf(switches, "main"),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "mutants", ".")
	build.Dir, build.Env = directory, append(os.Environ(), "GOWORK=off")
	output, err := build.CombinedOutput()
	require.True(t, err == nil, "%v: %s", err, output)
	got := map[string]string{}
	for _, mutant := range append(f.mutants, &Mutant{Key: "none"}) {
		_, output, err := test(t.Context(), filepath.Join(directory, "mutants"), directory, mutant.ID, time.Minute, nil)
		require.True(t, err == nil, "%s: %v: %s", mutant.Key, err, output)
		got[strings.TrimPrefix(mutant.Key, "main.go ")] = string(output)
	}
	want := map[string]string{
		"none": "goodbadbad",
		"grade: || instead of && in `points+bonus >= 10 && !(points < 0)`": "goodgoodgood",
		"grade: > instead of >= in `points+bonus >= 10`":                   "badbadbad",
		"grade: - instead of + in `points+bonus`":                          "badbadbad",
		"grade: negate `points+bonus >= 10`":                               "badbadgood",
		"grade: negate `(points < 0)`":                                     "badgoodbad",
		"grade: <= instead of < in `points < 0`":                           "goodbadbad",
		"grade: zero values instead of `return \"good\"`":                  "badbad",
		"grade: zero values instead of `return text`":                      "good",
		"grade: drop `text += \"bad\"`":                                    "good",
		"main: drop `print(grade(5, 5), grade(-1, 20), grade(0, 9))`":      "",
	}
	require.Equal(t, want, got)
}
