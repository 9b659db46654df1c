package integration

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

var updateBadInput = flag.Bool("update", false, "record the messages of the cluster instead of comparing them")

var (
	badInputFiles = filepath.Join(repositoryRoot, "test", "badinput")
	badInputPage  = filepath.Join(repositoryRoot, "docs", "reference", "sequentialjob-errors.md")
)

// badInput is a file in test/badinput: comments with a title and the expected message, then a
// manifest, and a second manifest if the error is in an update of the first.
type badInput struct {
	file  string
	title string
	// when is the phase in which the manifest is updated.
	when string
	// from is the source of the message.
	from, message string
	manifests     []*unstructured.Unstructured
	body          []byte
}

// The sources of messages.
const (
	fromDecoding  = "strict decoding"
	fromSchema    = "schema"
	fromRule      = "CEL rule"
	fromWebhook   = "webhook"
	fromWarning   = "warning"
	fromCondition = "condition"
	fromNobody    = "none"
)

// Each invalid manifest gets the recorded message and does not affect other objects.
func TestBadInput(t *testing.T) {
	inputs, rules, shared := readBadInputs(t), ruleMessages(t), namespace(t)
	t.Run("files", func(t *testing.T) {
		for _, input := range inputs {
			t.Run(input.title, func(t *testing.T) {
				t.Parallel()
				ns := shared
				if !input.isRefusedAtOnce() {
					ns = namespace(t)
				}
				input.try(t, rules, ns)
			})
		}
	})
	comparePage(t, inputs)

	good := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "good", Namespace: shared}}
	good.Spec.Containers = []v1alpha1.Step{{Name: "build"}}
	good.Spec.Containers[0].Image = "registry.example/tool:1"
	mustCreate(t, good)
	waitForPhase(t, client.ObjectKeyFromObject(good), string(v1alpha1.PhaseCompleted))
}

// Without a webhook, a condition has the same message as the webhook.
func TestBadInputWithoutAWebhook(t *testing.T) {
	for _, input := range readBadInputs(t) {
		if input.from != fromWebhook {
			continue
		}
		t.Run(input.title, func(t *testing.T) {
			t.Parallel()
			from, message := input.observe(t, nil, namespaceWithoutWebhook(t))
			_, text, _ := strings.Cut(message, ": ")
			if from != fromCondition || text == "" || !strings.HasSuffix(input.message, text) {
				t.Errorf("the webhook's message is %q, and that of the %s is %q", input.message, from, message)
			}
		})
	}
}

// isRefusedAtOnce returns whether the API server stores no object of the input.
func (b *badInput) isRefusedAtOnce() bool {
	return len(b.manifests) == 1 && slices.Contains([]string{fromDecoding, fromSchema, fromRule, fromWebhook}, b.from)
}

// try applies the input and compares the message.
func (b *badInput) try(t *testing.T, rules []string, ns string) {
	from, message := b.observe(t, rules, ns)
	if *updateBadInput {
		b.from, b.message = from, message
		b.write(t)
		return
	}
	want := "from: " + b.from + "\nmessage: " + b.message
	if diff := cmp.Diff(comparableMessage(t, want), comparableMessage(t, "from: "+from+"\nmessage: "+message)); diff != "" {
		t.Errorf("%s (-want, +got):\n%s", b.file, diff)
	}
}

// observe applies the input and returns the source and the text of the message.
func (b *badInput) observe(t *testing.T, rules []string, ns string) (from, message string) {
	warnings := &warningList{}
	strict := strictClient(t, warnings)
	last := len(b.manifests) - 1
	for i, manifest := range b.manifests {
		object := manifest.DeepCopy()
		object.SetNamespace(ns)
		err := apply(t.Context(), strict, object, i > 0)
		switch {
		case err != nil && i < last:
			t.Fatalf("%s: the first manifest is rejected: %v", b.file, err)
		case err != nil:
			return sourceOf(err, rules), normalizeMessage(messageOf(err))
		case len(warnings.all) > 0:
			return fromWarning, strings.Join(slices.Compact(warnings.all), "; ") // one warning for each attempt
		case i < last && b.when != "":
			waitForPhase(t, client.ObjectKeyFromObject(object), b.when)
		}
	}
	return observeCondition(t, client.ObjectKey{Namespace: ns, Name: b.manifests[last].GetName()})
}

// apply creates or replaces the object with strict field validation, as kubectl does.
func apply(ctx context.Context, strict client.Client, object *unstructured.Unstructured, replace bool) error {
	if !replace {
		return strict.Create(ctx, object)
	}
	for {
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(object.GroupVersionKind())
		if err := strict.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
			return err
		}
		object.SetResourceVersion(current.GetResourceVersion())
		object.SetFinalizers(current.GetFinalizers())
		if err := strict.Update(ctx, object); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// observeCondition waits until the operator has accepted or rejected an object.
func observeCondition(t *testing.T, key client.ObjectKey) (from, message string) {
	sj := &v1alpha1.SequentialJob{}
	poll.Until(t, "the operator to observe "+key.String(), func() bool {
		return cluster.Get(t.Context(), key, sj) == nil && sj.Status.ObservedGeneration == sj.Generation
	})
	if c := meta.FindStatusCondition(sj.Status.Conditions, v1alpha1.ConditionSpecAccepted); c != nil && c.Status == metav1.ConditionFalse {
		return fromCondition, normalizeMessage(fmt.Sprintf("SpecAccepted=False/%s: %s", c.Reason, c.Message))
	}
	return fromNobody, "phase " + string(sj.Status.Phase)
}

func waitForPhase(t *testing.T, key client.ObjectKey, phase string) {
	t.Helper()
	sj := &v1alpha1.SequentialJob{}
	poll.Until(t, "phase "+phase+" of "+key.String()+", whose first step has started", func() bool {
		return cluster.Get(t.Context(), key, sj) == nil && string(sj.Status.Phase) == phase &&
			len(sj.Status.Steps) > 0 && sj.Status.Steps[0].Phase != v1alpha1.StepPending
	})
}

func sourceOf(err error, rules []string) string {
	message := err.Error()
	contains := func(rule string) bool { return strings.Contains(message, rule) }
	switch {
	case strings.Contains(message, "strict decoding error"):
		return fromDecoding
	case strings.Contains(message, "admission webhook"):
		return fromWebhook
	case slices.ContainsFunc(rules, contains):
		return fromRule
	default:
		return fromSchema
	}
}

// messageOf returns the API server's message, without what the client adds.
func messageOf(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

var (
	nameHashes      = regexp.MustCompile(`-[0-9a-f]{10}\b`)
	uncheckedRemark = regexp.MustCompile(`\[(.*), <nil>: Invalid value: "?null"?: some validation rules were not checked [^]]*\]`)
)

// normalizeMessage removes from a message what differs between test runs, and the remark that some rules
// were not checked.
func normalizeMessage(message string) string {
	return nameHashes.ReplaceAllString(uncheckedRemark.ReplaceAllString(message, "$1"), "-<hash>")
}

// warningList collects the warnings that a client receives.
type warningList struct{ all []string }

var _ rest.WarningHandler = &warningList{}

// HandleWarningHeader is called for each warning.
func (w *warningList) HandleWarningHeader(code int, _, text string) {
	if code == 299 {
		w.all = append(w.all, text)
	}
}

// strictClient returns a client with strict field validation: an unknown field is an error.
func strictClient(t *testing.T, warnings *warningList) client.Client {
	t.Helper()
	own := rest.CopyConfig(config)
	own.WarningHandler = warnings
	return client.WithFieldValidation(newClient(t, own), client.FieldValidation(metav1.FieldValidationStrict))
}

// ruleMessages returns the messages of the CRD's CEL rules.
func ruleMessages(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repositoryRoot, "config", "crd", "bases", "yardmaster.dev_sequentialjobs.yaml"))
	require.NoError(t, err)
	var crd map[string]any
	require.NoError(t, yaml.Unmarshal(raw, &crd))
	return collectRules(crd)
}

func collectRules(node any) []string {
	var messages []string
	switch node := node.(type) {
	case map[string]any:
		if message, isText := node["message"].(string); isText && node["rule"] != nil {
			messages = append(messages, message)
		}
		for _, child := range node {
			messages = append(messages, collectRules(child)...)
		}
	case []any:
		for _, child := range node {
			messages = append(messages, collectRules(child)...)
		}
	}
	return messages
}

// readBadInputs reads test/badinput, in the order of the files' names.
func readBadInputs(t *testing.T) []*badInput {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(badInputFiles, "*.yaml"))
	require.True(t, err == nil && len(files) != 0, "no bad input found: %v", err)
	inputs := make([]*badInput, 0, len(files))
	for _, file := range files {
		inputs = append(inputs, readBadInput(t, file))
	}
	return inputs
}

func readBadInput(t *testing.T, file string) *badInput {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	b := &badInput{file: file}
	for bytes.HasPrefix(raw, []byte("# ")) {
		var line []byte
		line, raw, _ = bytes.Cut(raw, []byte("\n"))
		b.readComment(string(line[2:]))
	}
	b.body = raw
	for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
		manifest, err := decode(document)
		require.True(t, err == nil, "%s: %v", file, err)
		b.manifests = append(b.manifests, manifest)
	}
	return b
}

func (b *badInput) readComment(text string) {
	key, value, _ := strings.Cut(text, ": ")
	switch {
	case b.title == "":
		b.title = text
	case key == "when":
		b.when = value
	case key == "from":
		b.from = value
	case key == "message":
		b.message = value
	}
}

func decode(document []byte) (*unstructured.Unstructured, error) {
	raw, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	manifest := &unstructured.Unstructured{}
	if err := manifest.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	return manifest, nil
}

func (b *badInput) write(t *testing.T) {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", b.title)
	if b.when != "" {
		fmt.Fprintf(&text, "# when: %s\n", b.when)
	}
	fmt.Fprintf(&text, "# from: %s\n# message: %s\n", b.from, b.message)
	text.Write(b.body)
	require.NoError(t, os.WriteFile(b.file, []byte(text.String()), 0o600))
}

// comparePage compares the documentation page with the files that it is generated from.
func comparePage(t *testing.T, inputs []*badInput) {
	t.Helper()
	page := badInputTable(inputs)
	if *updateBadInput {
		require.NoError(t, os.WriteFile(badInputPage, []byte(page), 0o600))
		return
	}
	recorded, err := os.ReadFile(badInputPage)
	require.NoError(t, err)
	if diff := cmp.Diff(string(recorded), page); diff != "" {
		t.Errorf("%s is out of date; run this test with -update (-recorded, +new):\n%s", badInputPage, diff)
	}
}

func badInputTable(inputs []*badInput) string {
	var page strings.Builder
	page.WriteString(badInputIntroduction)
	for _, section := range badInputSections {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| Error | Message |\n|---|---|\n", section.title, section.text)
		for _, input := range inputs {
			if input.from == section.from {
				fmt.Fprintf(&page, "| [%s](../../test/badinput/%s) | %s |\n", input.title, filepath.Base(input.file), formatCodeCell(input.message))
			}
		}
	}
	return page.String()
}

// formatCodeCell formats text as code in a table cell.
func formatCodeCell(text string) string {
	text = strings.ReplaceAll(text, "|", `\|`)
	if strings.Contains(text, "`") {
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}

const badInputIntroduction = `<!-- Generated from test/badinput by test/integration; do not edit. -->
# Error messages of SequentialJobs

Each message was produced by a real API server. The links lead to the manifests. kubectl puts a
line such as ` + "`Error from server (Invalid): error when creating …`" + ` before
the message, and the server may add that ` + "`some validation rules were not checked`" + `.
`

var badInputSections = []struct{ from, title, text string }{
	{fromDecoding, "Fields that do not exist", "The API server refuses them because kubectl requests strict validation (`--validate=strict`, its default). Other clients get a warning, and the field is dropped."},
	{fromSchema, "Invalid values", "The API server refuses them by the schema in the CustomResourceDefinition."},
	{fromRule, "Invalid combinations of fields", "The API server refuses them by the rules in the CustomResourceDefinition."},
	{fromWebhook, "Errors that depend on other fields or on the state", "The operator's webhook refuses them. Without a webhook, the condition `SpecAccepted` has the same message."},
	{fromCondition, "Errors that Kubernetes' validation of Jobs finds", "Before the first step, the operator creates the Jobs of all steps in a dry run. The SequentialJob fails without running anything."},
	{fromWarning, "Warnings", "The webhook accepts them with a warning."},
	{fromNobody, "Accepted", "These manifests are valid."},
}
