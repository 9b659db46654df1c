package sequentialjob

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/ext"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision/condition"
)

// maxWhenCost limits the evaluation of an expression, so that an expression over many steps cannot delay other
// SequentialJobs. Rules in CRDs have the same limit.
const maxWhenCost = 1_000_000

// StepResult is the part of a step's status that an expression can read.
type StepResult struct {
	// Phase is the phase of the step.
	Phase string `cel:"phase"`
	// Reason is the reason of the phase.
	Reason string `cel:"reason"`
	// Output is the step's output, or "".
	Output string `cel:"output"`
}

// RunResult is the part of the run's status that an expression can read.
type RunResult struct {
	// Status is the outcome of the steps of containers: Running, Completed or Failed.
	Status string `cel:"status"`
	// FailedStep is the first step whose failure fails the run; empty if the run exceeded its deadline between two steps.
	FailedStep string `cel:"failedStep"`
	// FailedReason is why FailedStep failed.
	FailedReason string `cel:"failedReason"`
}

var whenEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		ext.NativeTypes(reflect.TypeFor[StepResult](), reflect.TypeFor[RunResult](), ext.ParseStructTags(true)),
		ext.Strings(),
		cel.Variable("steps", cel.MapType(cel.StringType, cel.ObjectType("sequentialjob.StepResult"))),
		cel.Variable("sequence", cel.ObjectType("sequentialjob.RunResult")),
		cel.Variable("parameters", cel.MapType(cel.StringType, cel.StringType)),
	)
})

// compileWhen checks the types of an expression, and the names of steps and parameters in it.
func compileWhen(expression string, steps, parameters []string) (*cel.Env, *cel.Ast, error) {
	env, err := whenEnvironment()
	if err != nil {
		return nil, nil, err
	}
	compiled, err := condition.Compile(env, expression)
	if err != nil {
		return nil, nil, err
	}
	for variable, known := range map[string][]string{"steps": steps, "parameters": parameters} {
		for _, key := range keysOf(compiled, variable) {
			if !slices.Contains(known, key) {
				return nil, nil, fmt.Errorf("%s has no %q: it can have %q", variable, key, known)
			}
		}
	}
	return env, compiled, nil
}

// keysOf returns the literal keys of a map variable that an expression selects: m.key and m["key"].
func keysOf(compiled *cel.Ast, variable string) []string {
	var keys []string
	isVariable := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == variable }
	visitor := ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() { // only these two kinds select a key
		case ast.SelectKind:
			if isVariable(e.AsSelect().Operand()) && !e.AsSelect().IsTestOnly() {
				keys = append(keys, e.AsSelect().FieldName())
			}
		case ast.CallKind:
			args := e.AsCall().Args()
			if e.AsCall().FunctionName() != "_[_]" || len(args) != 2 || !isVariable(args[0]) || args[1].Kind() != ast.LiteralKind {
				return
			}
			if key, isText := args[1].AsLiteral().Value().(string); isText {
				keys = append(keys, key)
			}
		}
	})
	ast.PostOrderVisit(compiled.NativeRep().Expr(), visitor)
	return keys
}

// checkWhen returns an error if the step's expression cannot be evaluated when the step is due.
func checkWhen(spec *v1alpha1.SequentialJobSpec, step *v1alpha1.Step) error {
	if step.Options().When == "" {
		return nil
	}
	var earlier, parameters []string
	for i := range spec.Containers {
		if spec.Containers[i].Name == step.Name {
			break
		}
		earlier = append(earlier, spec.Containers[i].Name)
	}
	for _, parameter := range spec.Parameters {
		parameters = append(parameters, parameter.Name)
	}
	_, _, err := compileWhen(step.Options().When, earlier, parameters)
	return err
}

func isWanted(sj *v1alpha1.SequentialJob, step *v1alpha1.Step) (bool, error) {
	if step.Options().When == "" {
		return true, nil
	}
	steps, parameters := map[string]StepResult{}, map[string]string{}
	var names, parameterNames []string
	for i := range sj.Status.Steps {
		earlier := &sj.Status.Steps[i]
		if earlier.Name == step.Name {
			break
		}
		names = append(names, earlier.Name)
		steps[earlier.Name] = StepResult{Phase: string(earlier.Phase), Reason: earlier.Reason, Output: earlier.Output}
	}
	for _, parameter := range sj.Status.Parameters {
		parameterNames = append(parameterNames, parameter.Name)
		parameters[parameter.Name] = parameter.Value
	}
	env, compiled, err := compileWhen(step.Options().When, names, parameterNames)
	if err != nil {
		return false, err
	}
	result, _ := resultBeforeFinally(sj)
	return condition.Evaluate(env, compiled, maxWhenCost, map[string]any{
		"steps": steps, "parameters": parameters, "sequence": result,
	})
}

// isUnwanted reports whether the step was skipped because of its expression, which is not a failure.
func isUnwanted(step *v1alpha1.StepStatus) bool {
	return step.Phase == v1alpha1.StepSkipped && step.Reason == v1alpha1.ReasonWhenFalse
}
