package sequentialjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// readOutput returns the output of a step that succeeded: the termination message of its Pod, without trailing newlines, as in a
// shell's $(command). The Pod is nil if it is not known. It returns a problem if the output is not known exactly, or cannot be
// the value of an environment variable.
func readOutput(job *batchv1.Job, pod *corev1.Pod, step string) (output string, problem *decision.Problem) {
	if pod == nil {
		return "", &decision.Problem{Reason: v1alpha1.ReasonOutputLost, Message: "the step's Pod was deleted before its output was recorded" + explainTTL(job)}
	}
	terminated := containerStatus(pod, step).State.Terminated
	if terminated == nil {
		return "", &decision.Problem{Reason: v1alpha1.ReasonOutputLost, Message: fmt.Sprintf("Pod %s does not report how container %s ended", pod.Name, step)}
	}
	limit := decision.TerminationMessageLimit(max(1, decision.CountContainers(&pod.Spec)))
	text, mayBeCut := terminated.Message, len(terminated.Message) >= limit
	if mayBeCut { // perhaps within a character
		text = strings.Trim(text, string(utf8.RuneError))
	}
	switch {
	case strings.ContainsRune(text, 0):
		return "", &decision.Problem{Reason: v1alpha1.ReasonOutputInvalid, Message: "the output contains a NUL byte; write text, for example in Base64"}
	case strings.ContainsRune(text, utf8.RuneError): // the API server and its clients replace invalid UTF-8, so the original bytes are lost
		return "", &decision.Problem{Reason: v1alpha1.ReasonOutputInvalid, Message: "the output is not valid UTF-8; write text, for example in Base64"}
	case mayBeCut:
		return "", &decision.Problem{Reason: v1alpha1.ReasonOutputTooLong, Message: fmt.Sprintf(
			"the output has %d bytes or more, and the rest is lost; write at most %d, or a file in a workspace", limit, limit-1)}
	}
	output = strings.TrimRight(terminated.Message, "\n")
	if jobOptions(job).OutputFormat == v1alpha1.OutputJSON {
		if err := checkJSON(step, output); err != nil {
			return "", &decision.Problem{Reason: v1alpha1.ReasonOutputInvalid, Message: "the output is not usable as JSON: " + err.Error()}
		}
	}
	return output, nil
}

// parseOutput returns an output in JSON as values that expressions can use, with whole numbers as such.
func parseOutput(output string) (any, error) {
	var value any
	if err := json.Unmarshal([]byte(output), &value); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(output))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return rewriteJSON(value, func(value any) any {
		number, isNumber := value.(json.Number)
		if !isNumber {
			return value
		}
		if whole, err := number.Int64(); err == nil {
			return whole
		}
		float, _ := number.Float64() // in the range of float64, because the value was parsed before
		return float
	}), nil
}

// checkJSON returns an error for an output that cannot be parsed, or with fields that cannot be variables.
func checkJSON(step, output string) error {
	if _, err := parseOutput(output); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, variable := range fieldEnvVars(step, output) {
		switch {
		case names[variable.Name]:
			return fmt.Errorf("two fields would be the variable %s", variable.Name)
		case strings.ContainsRune(variable.Value, 0):
			return fmt.Errorf("the variable %s would contain a NUL byte", variable.Name)
		}
		names[variable.Name] = true
	}
	return nil
}

// fieldEnvVars returns the fields of a step's output in JSON as environment variables: text as it is, null as empty text, everything
// else as JSON.
func fieldEnvVars(step, output string) []corev1.EnvVar {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(output), &fields) != nil { // no object, or the step had another format when it ran
		return nil
	}
	toName := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}
	var variables []corev1.EnvVar
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		text := ""
		if json.Unmarshal(fields[field], &text) != nil {
			text = string(fields[field])
		}
		variables = append(variables, literalEnvVar(outputEnvName(step)+"_"+strings.Map(toName, field), text))
	}
	return variables
}

func outputEnvVars(sj *v1alpha1.SequentialJob, step string) []corev1.EnvVar {
	var variables, fields []corev1.EnvVar
	for i := range sj.Spec.Containers {
		earlier := &sj.Spec.Containers[i]
		if earlier.Name == step {
			break
		}
		if !earlier.Options().Outputs {
			continue
		}
		record := findStep(sj.Status.Steps, earlier.Name)
		if record != nil && record.Phase == v1alpha1.StepSucceeded && earlier.Options().OutputFormat == v1alpha1.OutputJSON {
			fields = append(fields, fieldEnvVars(earlier.Name, record.Output)...)
		}
		variables = append(variables, corev1.EnvVar{
			Name: outputEnvName(earlier.Name),
			ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: OutputsName(sj)},
				Key:                  earlier.Name,
				Optional:             new(true), // a failed step has no output
			}},
		})
	}
	return append(fields, variables...) // of equal names, the last counts
}

func outputEnvName(step string) string {
	return "STEP_" + strings.ToUpper(strings.ReplaceAll(step, "-", "_")) + "_OUTPUT"
}

// explainTTL says that Kubernetes deletes the Job with its Pods, if someone set its time to live; the operator does not set it.
func explainTTL(job *batchv1.Job) string {
	if ttl := job.Spec.TTLSecondsAfterFinished; ttl != nil {
		return fmt.Sprintf("; a policy of the cluster set ttlSecondsAfterFinished: %d of the Job", *ttl)
	}
	return ""
}

// outputsConfigMap returns the ConfigMap with the outputs recorded in the status; nil if no step of the spec has
// outputs, or none is recorded in the first run. A later run may need an empty ConfigMap, to remove the outputs of the
// run before.
func outputsConfigMap(sj *v1alpha1.SequentialJob, status *v1alpha1.SequentialJobStatus) *corev1.ConfigMap {
	hasOutputs := false
	data := map[string]string{}
	for i := range sj.Spec.Containers {
		step := &sj.Spec.Containers[i]
		if !step.Options().Outputs {
			continue
		}
		hasOutputs = true
		if recorded := findStep(status.Steps, step.Name); recorded != nil && recorded.Phase == v1alpha1.StepSucceeded {
			data[step.Name] = recorded.Output
		}
	}
	if !hasOutputs || (len(data) == 0 && status.Run == 1) {
		return nil
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            OutputsName(sj),
			Namespace:       sj.Namespace,
			Labels:          childLabels(sj),
			OwnerReferences: decision.ControllerReferences("SequentialJob", sj),
		},
		Data: data,
	}
}
