package sequentialjob

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// The environment variables of all steps that name the attempt, for keys of requests that must have one effect.
const (
	envUID     = "SEQUENCE_UID"
	envRun     = "SEQUENCE_RUN"
	envAttempt = "STEP_ATTEMPT"
)

// The environment variables of steps with finally that report how the steps before them ended.
const (
	envStatus        = "SEQUENCE_STATUS"
	envFailedStep    = "SEQUENCE_FAILED_STEP"
	envFailedReason  = "SEQUENCE_FAILED_REASON"
	envFailedMessage = "SEQUENCE_FAILED_MESSAGE"
)

// resultBeforeFinally returns how the steps without finally ended, and the message of their failure.
func resultBeforeFinally(sj *v1alpha1.SequentialJob) (result RunResult, failure string) {
	var steps []v1alpha1.StepStatus
	for _, step := range sj.Status.Steps {
		if !IsFinally(&sj.Spec, step.Name) {
			steps = append(steps, step)
		}
	}
	if failed := failedStep(steps); failed != nil {
		return RunResult{string(v1alpha1.PhaseFailed), failed.Name, failed.Reason}, failed.Message
	}
	result.Status = string(v1alpha1.PhaseCompleted)
	for i := range steps {
		switch step := &steps[i]; {
		case step.Phase == v1alpha1.StepSkipped && step.Reason == v1alpha1.ReasonDeadlineExceeded:
			return RunResult{Status: string(v1alpha1.PhaseFailed), FailedReason: step.Reason}, deadlineMessage
		case canStart(step.Phase) || isActive(step.Phase):
			result.Status = string(v1alpha1.PhaseRunning)
		}
	}
	return result, ""
}

// withAttempt adds the environment variables that name an attempt, except those that the step sets itself. They come last, so that
// messages of the API server about the step's own variables have the right index. The UID is a reference, so that equal
// SequentialJobs have equal Pod templates, which need one dry run.
func withAttempt(own []corev1.EnvVar, run, attempt int32) []corev1.EnvVar {
	all := slices.Clone(own)
	for _, variable := range []corev1.EnvVar{
		{Name: envUID, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			APIVersion: "v1", FieldPath: "metadata.labels['" + v1alpha1.LabelSequentialJobUID + "']",
		}}},
		{Name: envRun, Value: strconv.Itoa(int(run))},
		{Name: envAttempt, Value: strconv.Itoa(int(attempt))},
	} {
		if !slices.ContainsFunc(own, func(set corev1.EnvVar) bool { return set.Name == variable.Name }) {
			all = append(all, variable)
		}
	}
	return all
}

// runEnvVars returns the environment variables with the parameters of the run and, for a step with finally, how the
// steps before those ended. They come first in a step's environment, so that its variables can refer to them.
func runEnvVars(sj *v1alpha1.SequentialJob, step string) []corev1.EnvVar {
	var variables []corev1.EnvVar
	for _, parameter := range sj.Status.Parameters {
		variables = append(variables, literalEnvVar(parameter.Name, parameter.Value))
	}
	if !IsFinally(&sj.Spec, step) {
		return variables
	}
	result, failure := resultBeforeFinally(sj)
	return append(variables,
		literalEnvVar(envStatus, result.Status),
		literalEnvVar(envFailedStep, result.FailedStep),
		literalEnvVar(envFailedReason, result.FailedReason),
		literalEnvVar(envFailedMessage, failure),
	)
}

// literalEnvVar returns a variable with this value, escaped because Kubernetes replaces $(NAME).
func literalEnvVar(name, value string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, Value: strings.ReplaceAll(value, "$", "$$")}
}

// runParameters returns the parameters of the spec, with the values that a rerun replaces.
func runParameters(spec *v1alpha1.SequentialJobSpec, rerun *v1alpha1.SequenceRerun) []v1alpha1.Parameter {
	parameters := slices.Clone(spec.Parameters)
	if rerun == nil {
		return parameters
	}
	for i := range parameters {
		for _, replaced := range rerun.Parameters {
			if replaced.Name == parameters[i].Name {
				parameters[i].Value = replaced.Value
			}
		}
	}
	return parameters
}
