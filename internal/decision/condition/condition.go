// Package condition compiles and evaluates conditions in CEL. It is a package of its own because few programs need CEL.
package condition

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
)

// CompileValue checks the types of a CEL expression. The error names the columns.
func CompileValue(env *cel.Env, expression string) (*cel.Ast, error) {
	compiled, issues := env.Compile(expression)
	if issues.Err() == nil {
		return compiled, nil
	}
	var problems []string
	for _, issue := range issues.Errors() {
		problems = append(problems, fmt.Sprintf("column %d: %s", issue.Location.Column()+1, issue.Message))
	}
	return nil, errors.New(strings.Join(problems, "; "))
}

// Compile checks the types of a CEL expression, which must be true or false.
func Compile(env *cel.Env, expression string) (*cel.Ast, error) {
	compiled, err := CompileValue(env, expression)
	if err == nil && compiled.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("must be true or false, but has the type %s", compiled.OutputType())
	}
	return compiled, err
}

// Value returns the value of a compiled expression. The cost limit keeps an expression from delaying other objects.
func Value(env *cel.Env, compiled *cel.Ast, costLimit uint64, variables map[string]any) (any, error) {
	program, err := env.Program(compiled, cel.CostLimit(costLimit))
	if err != nil {
		return nil, err
	}
	result, _, err := program.Eval(variables)
	if err != nil {
		return nil, err
	}
	return result.Value(), nil
}

// Evaluate returns whether a compiled expression is true.
func Evaluate(env *cel.Env, compiled *cel.Ast, costLimit uint64, variables map[string]any) (bool, error) {
	result, err := Value(env, compiled, costLimit, variables)
	if err != nil {
		return false, err
	}
	isTrue, isBool := result.(bool)
	if !isBool {
		return false, errors.New("the result is not true or false")
	}
	return isTrue, nil
}
