package sequentialjob

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
		cel.Variable("outputs", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("parameters", cel.MapType(cel.StringType, cel.StringType)),
	)
})

// compileExpression checks the types of an expression, and the names of steps and parameters in it.
func compileExpression(expression string, steps, parameters []string, compile func(*cel.Env, string) (*cel.Ast, error)) (*cel.Env, *cel.Ast, error) {
	env, err := whenEnvironment()
	if err != nil {
		return nil, nil, err
	}
	compiled, err := compile(env, expression)
	if err != nil {
		return nil, nil, err
	}
	for variable, known := range map[string][]string{"steps": steps, "outputs": steps, "parameters": parameters} {
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

// validateExpressions checks the types and names in expressions: of a step about the steps before it, and of results about all steps.
func validateExpressions(spec *v1alpha1.SequentialJobSpec) field.ErrorList {
	var errs field.ErrorList
	var steps, parameters []string
	for _, parameter := range spec.Parameters {
		parameters = append(parameters, parameter.Name)
	}
	for i := range spec.Containers {
		if when := spec.Containers[i].Options().When; when != "" {
			if _, _, err := compileExpression(when, steps, parameters, condition.Compile); err != nil {
				errs = append(errs, field.Invalid(field.NewPath("spec", "containers").Index(i).Child("step", "when"), when, err.Error()))
			}
		}
		steps = append(steps, spec.Containers[i].Name)
	}
	for i, result := range spec.Results {
		if _, _, err := compileExpression(result.Value, steps, parameters, condition.CompileValue); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "results").Index(i).Child("value"), result.Value, err.Error()))
		}
	}
	return errs
}

func isWanted(sj *v1alpha1.SequentialJob, step *v1alpha1.Step) (bool, error) {
	if step.Options().When == "" {
		return true, nil
	}
	earlier := sj.Status.Steps
	if at := slices.IndexFunc(earlier, func(s v1alpha1.StepStatus) bool { return s.Name == step.Name }); at >= 0 {
		earlier = earlier[:at]
	}
	result, err := evaluate(sj, earlier, step.Options().When, condition.Compile)
	wanted, _ := result.(bool)
	return wanted, err
}

// evaluate returns the value of an expression about steps that have ended.
func evaluate(sj *v1alpha1.SequentialJob, ended []v1alpha1.StepStatus, expression string, compile func(*cel.Env, string) (*cel.Ast, error)) (any, error) {
	steps, outputs, parameters := map[string]StepResult{}, map[string]any{}, map[string]string{}
	var names, parameterNames []string
	for i := range ended {
		step, spec := &ended[i], findStepSpec(&sj.Spec, ended[i].Name)
		names = append(names, step.Name)
		steps[step.Name] = StepResult{Phase: string(step.Phase), Reason: step.Reason, Output: step.Output}
		if step.Phase != v1alpha1.StepSucceeded || spec == nil || !spec.Options().Outputs {
			continue
		}
		outputs[step.Name] = step.Output
		if spec.Options().OutputFormat == v1alpha1.OutputJSON {
			value, err := parseOutput(step.Output)
			if err != nil { // the step had another format when it ran
				return nil, fmt.Errorf("the output of step %q is not JSON: %w", step.Name, err)
			}
			outputs[step.Name] = value
		}
	}
	for _, parameter := range sj.Status.Parameters {
		parameterNames = append(parameterNames, parameter.Name)
		parameters[parameter.Name] = parameter.Value
	}
	env, compiled, err := compileExpression(expression, names, parameterNames, compile)
	if err != nil {
		return nil, err
	}
	result, _ := resultBeforeFinally(sj)
	return condition.Value(env, compiled, maxWhenCost, map[string]any{
		"steps": steps, "outputs": outputs, "parameters": parameters, "sequence": result,
	})
}

// runResults returns the results of a completed run, and why others are missing: the steps have done their work.
func runResults(sj *v1alpha1.SequentialJob) (results []v1alpha1.Parameter, problems []string) {
	for _, result := range sj.Spec.Results {
		value, err := evaluate(sj, sj.Status.Steps, result.Value, condition.CompileValue)
		switch value.(type) {
		case nil, string, bool, int64, uint64, float64:
		default:
			err = errors.New("it is not a text, a number, true or false")
		}
		text := fmt.Sprint(value)
		if length := utf8.RuneCountInString(text); err == nil && length > maxParameterLength {
			err = fmt.Errorf("it has %d characters, and may have %d", length, maxParameterLength)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("Run %d has no result %s: %s", sj.Status.Run, result.Name, err))
			continue
		}
		results = append(results, v1alpha1.Parameter{Name: result.Name, Value: text})
	}
	return results, problems
}

// isUnwanted reports whether the step was skipped because of its expression, which is not a failure.
func isUnwanted(step *v1alpha1.StepStatus) bool {
	return step.Phase == v1alpha1.StepSkipped && step.Reason == v1alpha1.ReasonWhenFalse
}
