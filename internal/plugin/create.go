package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// newCreateCommand returns a command that creates the object that build returns.
func newCreateCommand[T client.Object](env *environment, kind *resourceKind[T], short string, build func(context.Context, *clusterConnection) (T, error)) *cobra.Command {
	return &cobra.Command{
		Use:               "create NAME",
		Short:             short,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, args []string) error {
			cluster, err := env.connect(env.clientConfig)
			if err != nil {
				return err
			}
			object, err := build(command.Context(), cluster)
			if err != nil {
				return err
			}
			object.SetNamespace(cluster.namespace)
			object.SetName(args[0])
			if err := cluster.Create(command.Context(), object); err != nil {
				return err
			}
			fmt.Fprintln(env.out, kind.qualifiedName(object), "created")
			return nil
		},
	}
}

func newCreateSequenceCommand(env *environment) *cobra.Command {
	var image string
	var steps []string
	const short = "Create a SequentialJob of scripts that run in one image"
	command := newCreateCommand(env, sequentialJobKind, short, func(context.Context, *clusterConnection) (*v1alpha1.SequentialJob, error) {
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
	})
	command.Flags().StringVar(&image, "image", "", "Image of all steps.")
	command.Flags().StringArrayVar(&steps, "step", nil, "Step as NAME=SCRIPT, which sh runs. Repeat the flag for each step, in their order.")
	return command
}

// maxPromptBytes is more than the API server accepts in a request.
const maxPromptBytes = 16 << 20

func newCreateSessionCommand(env *environment) *cobra.Command {
	var promptFile string
	spec := v1alpha1.AgenticSessionSpec{}
	command := newCreateCommand(env, agenticSessionKind, "Create an AgenticSession with a prompt", func(ctx context.Context, cluster *clusterConnection) (*v1alpha1.AgenticSession, error) {
		if (spec.Prompt == "") == (promptFile == "") {
			return nil, errors.New("set either --prompt or --prompt-file")
		}
		if promptFile != "" {
			prompt, err := readFile(promptFile, env.in, maxPromptBytes)
			if err != nil {
				return nil, err
			}
			spec.Prompt = string(prompt)
		}
		// Where no webhook records the user, an admission policy requires the name.
		user, err := cluster.userName(ctx)
		if err != nil {
			return nil, err
		}
		spec.UserContext = &v1alpha1.UserContext{UserID: user}
		return &v1alpha1.AgenticSession{Spec: spec}, nil
	})
	command.Flags().StringVar(&spec.Runner, "runner", "", "SessionRunner of the session. The default is the one named default.")
	command.Flags().StringVar(&spec.Prompt, "prompt", "", "Prompt of the session.")
	command.Flags().StringVar(&promptFile, "prompt-file", "", "File with the prompt, or - for standard input.")
	return command
}

// readFile reads a file of at most limit bytes, or in if the name is -.
func readFile(name string, in io.Reader, limit int64) ([]byte, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return content, err
}
