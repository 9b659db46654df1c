package condition

import (
	"testing"

	"github.com/google/cel-go/cel"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestAnExpressionIsTrueFalseOrAnErrorThatNamesItsColumns(t *testing.T) {
	env := require.Call(cel.NewEnv(cel.Variable("n", cel.IntType), cel.Variable("any", cel.DynType))).Succeeds(t)
	for expression, row := range map[string]struct {
		compiles string // the error, if it does not compile
		want     bool
		fails    string // the error of the evaluation
	}{
		"n == 3":                   {want: true},
		"n == 4":                   {},
		"n +":                      {compiles: "column 4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"},
		"a && b":                   {compiles: "column 1: undeclared reference to 'a' (in container ''); column 6: undeclared reference to 'b' (in container '')"},
		"n + 1":                    {compiles: "must be true or false, but has the type int"},
		"any":                      {compiles: "must be true or false, but has the type dyn"},
		"n / 0 == 1":               {fails: "division by zero"},
		"[1, 2, 3].all(x, x < 99)": {fails: "operation cancelled: actual cost limit exceeded"},
	} {
		text := func(err error) string {
			if err == nil {
				return ""
			}
			return err.Error()
		}
		compiled, err := Compile(env, expression)
		require.True(t, text(err) == row.compiles, "%s: %q, want %q", expression, text(err), row.compiles)
		if err != nil {
			continue
		}
		got, err := Evaluate(env, compiled, 10, map[string]any{"n": 3})
		require.True(t, got == row.want && text(err) == row.fails, "%s: %t, %q; want %t, %q", expression, got, text(err), row.want, row.fails)
	}
	compiled := require.Call(CompileValue(env, "any")).Succeeds(t)
	got, err := Evaluate(env, compiled, 10, map[string]any{"any": 3})
	require.True(t, !got && err != nil, "a number is %t, %v", got, err)
	require.Equal(t, any(int64(3)), require.Call(Value(env, compiled, 10, map[string]any{"any": 3})).Succeeds(t))
}
