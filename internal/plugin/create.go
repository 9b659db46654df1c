package plugin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// The values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// createCommand is `kubectl yardmaster seq create` and the same for the other kinds.
type createCommand[T client.Object] struct {
	*environment
	outputOptions

	kind             *resourceKind[T]
	filename, dryRun string
	// build returns an object from the flags of its kind. Without it, objects come from a file.
	build func(name string) (T, error)
}

// newCreateCommand returns a command that creates objects from a file, or one from flags. addFlags adds
// the flags from which build makes an object; both are nil for kinds without such flags.
func newCreateCommand[T client.Object](env *environment, kind *resourceKind[T], addFlags func(*cobra.Command), build func(string) (T, error)) *cobra.Command {
	c := &createCommand[T]{environment: env, kind: kind, build: build}
	command := &cobra.Command{
		Use:   "create -f FILE",
		Short: "Create " + kind.kindName + "s",
		Long: "Create the " + kind.kindName + "s of a file, or of standard input with -f -. " +
			"To see what would be created, use --dry-run=client -o yaml.",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, names []string) error { return c.create(command.Context(), names) },
	}
	command.Flags().StringVarP(&c.filename, "filename", "f", "", "File with the objects in YAML or JSON, or - for standard input.")
	if build != nil {
		command.Use = "create (NAME | -f FILE)"
		addFlags(command)
	}
	c.addOutputFlags(command, outputName, outputYAML, outputJSON)
	command.Flags().StringVar(&c.dryRun, "dry-run", dryRunNone, "none, client (send nothing) or server (send a request that stores nothing).")
	completeValues(command, "dry-run", dryRunNone, dryRunClient, dryRunServer)
	return command
}

func (c *createCommand[T]) create(ctx context.Context, names []string) error {
	if err := errors.Join(c.validateOutput(), validateChoice("dry-run", c.dryRun, dryRunNone, dryRunClient, dryRunServer)); err != nil {
		return err
	}
	objects, err := c.objects(names)
	if err != nil {
		return err
	}
	if c.dryRun == dryRunClient {
		return c.printCreated(objects, " created (dry run)")
	}
	cluster, err := c.connect(c.clientConfig)
	if err != nil {
		return err
	}
	var failures []error
	var options []client.CreateOption
	outcome := " created"
	if c.dryRun == dryRunServer {
		options, outcome = append(options, client.DryRunAll), " created (server dry run)"
	}
	for _, object := range objects {
		if object.GetNamespace() == "" {
			object.SetNamespace(cluster.namespace)
		}
		if err := cluster.Create(ctx, object, options...); err != nil {
			failures = append(failures, err)
			continue
		}
		failures = append(failures, c.printCreated([]T{object}, outcome))
	}
	return errors.Join(failures...)
}

// objects returns the objects of the file, or the one of the flags.
func (c *createCommand[T]) objects(names []string) ([]T, error) {
	switch {
	case c.filename != "" && len(names) > 0:
		return nil, errors.New("set either a NAME or --filename")
	case c.filename != "":
		return c.readObjects()
	case c.build == nil:
		return nil, errors.New("set --filename")
	case len(names) != 1:
		return nil, errors.New("set one NAME, or --filename")
	}
	object, err := c.build(names[0])
	if err != nil {
		return nil, err
	}
	object.SetName(names[0])
	return []T{object}, nil
}

// readObjects reads the objects of the file. Unknown fields are errors.
func (c *createCommand[T]) readObjects() ([]T, error) {
	raw, err := readFile(c.filename, c.in, maxManifestBytes)
	if err != nil {
		return nil, err
	}
	var objects []T
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.filename, err)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		object := deepCopy(c.kind.emptyObject)
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return nil, fmt.Errorf("%s: %w", c.filename, err)
		}
		if kind := object.GetObjectKind().GroupVersionKind(); kind != v1alpha1.GroupVersion.WithKind(c.kind.kindName) {
			return nil, fmt.Errorf("%s contains a %s, not a %s of %s", c.filename, kind.Kind, c.kind.kindName, v1alpha1.GroupVersion)
		}
		objects = append(objects, object)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s contains no object", c.filename)
	}
	return objects, nil
}

// maxManifestBytes is more than the API server accepts in a request.
const maxManifestBytes = 16 << 20

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

// printCreated prints the name and outcome of each object, or the object as it is applied.
func (c *createCommand[T]) printCreated(objects []T, outcome string) error {
	for i, object := range objects {
		if c.format == outputName {
			fmt.Fprintln(c.out, c.kind.qualifiedName(object)+outcome)
			continue
		}
		object.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(c.kind.kindName))
		object.SetManagedFields(nil)
		manifest, err := manifestOf(object)
		if err != nil {
			return err
		}
		if i > 0 && c.format == outputYAML {
			fmt.Fprintln(c.out, "---")
		}
		if err := c.printObject(c.out, manifest); err != nil {
			return err
		}
	}
	return nil
}

// manifestOf returns an object without its status and the empty fields of its metadata.
func manifestOf(object client.Object) (any, error) {
	decoded, err := decodeObject(object)
	if err != nil {
		return nil, err
	}
	if fields, isObject := decoded.(map[string]any); isObject {
		delete(fields, "status")
		if metadata, isObject := fields["metadata"].(map[string]any); isObject && metadata["creationTimestamp"] == nil {
			delete(metadata, "creationTimestamp")
		}
	}
	return decoded, nil
}

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
