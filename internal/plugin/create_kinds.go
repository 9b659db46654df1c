package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// newCreateSequenceCommand is `kubectl yardmaster seq create`.
func newCreateSequenceCommand(env *environment) *cobra.Command {
	var image string
	var steps []string
	return newCreateCommand(env, sequentialJobKind, func(command *cobra.Command) {
		command.Flags().StringVar(&image, "image", "", "Image of all steps.")
		command.Flags().StringArrayVar(&steps, "step", nil, "Step as NAME=SCRIPT, which sh runs. Repeat the flag for each step, in their order.")
	}, func(string) (*v1alpha1.SequentialJob, error) { return buildSequence(image, steps) })
}

func buildSequence(image string, steps []string) (*v1alpha1.SequentialJob, error) {
	if image == "" || len(steps) == 0 {
		return nil, errors.New("set --image and at least one --step")
	}
	sj := &v1alpha1.SequentialJob{}
	for _, text := range steps {
		name, script, found := strings.Cut(text, "=")
		if !found || name == "" || script == "" {
			return nil, fmt.Errorf("invalid --step %q: must be NAME=SCRIPT, such as 'load=python load.py'", text)
		}
		sj.Spec.Containers = append(sj.Spec.Containers, v1alpha1.Step{
			Name: name, Container: corev1.Container{Command: []string{"sh", "-ec", script}},
		})
	}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "step", Image: image}}}}
	sj.Spec.Template = &v1alpha1.PodTemplate{PodTemplateSpec: template}
	return sj, nil
}

// newCreateSessionCommand is `kubectl yardmaster session create`.
func newCreateSessionCommand(env *environment) *cobra.Command {
	var runner, prompt, promptFile string
	return newCreateCommand(env, agenticSessionKind, func(command *cobra.Command) {
		command.Flags().StringVar(&runner, "runner", "", "SessionRunner of the session. The default is the one named default.")
		command.Flags().StringVar(&prompt, "prompt", "", "Prompt of the session.")
		command.Flags().StringVar(&promptFile, "prompt-file", "", "File with the prompt, or - for standard input.")
	}, func(string) (*v1alpha1.AgenticSession, error) {
		return buildSession(env, runner, prompt, promptFile)
	})
}

func buildSession(env *environment, runner, prompt, promptFile string) (*v1alpha1.AgenticSession, error) {
	if (prompt == "") == (promptFile == "") {
		return nil, errors.New("set either --prompt or --prompt-file")
	}
	if promptFile != "" {
		raw, err := readFile(promptFile, env.in, maxManifestBytes)
		if err != nil {
			return nil, err
		}
		prompt = string(raw)
	}
	s := &v1alpha1.AgenticSession{}
	s.Spec.Prompt, s.Spec.Runner = prompt, runner
	return s, nil
}
