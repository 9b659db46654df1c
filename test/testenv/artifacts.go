package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// artifacts is the folder of this run, empty at its start: dist/failures/PACKAGE in the repository, or $TEST_ARTIFACTS/PACKAGE.
var artifacts = sync.OnceValue(func() string {
	base := os.Getenv("TEST_ARTIFACTS")
	if base == "" {
		base = filepath.Join(Root(), "dist", "failures")
	}
	folder, err := filepath.Abs(filepath.Join(base, strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")))
	if err == nil {
		err = errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)) //nolint:gosec // build output
	}
	if err != nil {
		panic(err)
	}
	return folder
})

// Artifact returns the path of a file for what explains a failure, such as a log.
func Artifact(name string) string { return filepath.Join(artifacts(), name) }

// ReportArtifacts prints the folder with the artifacts unless the exit code of the tests is 0.
func ReportArtifacts(code int) {
	if code != 0 {
		fmt.Printf("==> NOTICE: logs of the operator and objects are in %s\n", artifacts())
	}
}

// maxSavedObjects is the maximum number of objects of a kind that are saved.
const maxSavedObjects = 500

// SaveObjectsOfFailedTest saves the events, the objects of the operator's kinds, the Jobs and the Pods of the namespaces as artifacts if the test
// has failed. Call it before they are deleted.
func SaveObjectsOfFailedTest(ctx context.Context, t testing.TB, c client.Reader, namespaces ...string) {
	t.Helper()
	for _, ns := range namespaces {
		if t.Failed() {
			file, err := saveObjects(ctx, c, ns)
			t.Logf("the objects of namespace %s are in %s (errors: %v)", ns, file, err)
		}
	}
}

func saveObjects(ctx context.Context, c client.Reader, namespace string) (file string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // the API server may be what has failed
	defer cancel()
	var text strings.Builder
	events, err := describeEvents(ctx, c, namespace)
	text.WriteString(events)
	failures := []error{err}
	for _, kind := range savedKinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(maxSavedObjects)); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", kind.Kind, err))
			continue
		}
		for i := range list.Items {
			list.Items[i].SetManagedFields(nil)
			manifest, err := yaml.Marshal(&list.Items[i])
			failures = append(failures, err)
			text.WriteString("---\n" + string(manifest))
		}
	}
	file = Artifact(namespace + ".yaml")
	failures = append(failures, os.WriteFile(file, []byte(text.String()), 0o600))
	return file, errors.Join(failures...)
}

// describeEvents returns the events of a namespace as comments of YAML, the oldest first.
func describeEvents(ctx context.Context, c client.Reader, namespace string) (string, error) {
	var list corev1.EventList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.Limit(maxSavedObjects)); err != nil {
		return "", fmt.Errorf("events: %w", err)
	}
	lines := make([]string, 0, len(list.Items))
	for i := range list.Items {
		e := &list.Items[i]
		at := e.EventTime.Time
		if at.IsZero() { // events of the older API
			at = e.LastTimestamp.Time
		}
		lines = append(lines, fmt.Sprintf("# %s %s %s/%s %s: %q\n", at.UTC().Format(time.RFC3339Nano), e.Type, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message))
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}

// savedKinds returns the kinds of the operator, and those of what it creates most.
func savedKinds() []schema.GroupVersionKind {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	kinds := []schema.GroupVersionKind{batchv1.SchemeGroupVersion.WithKind("Job"), corev1.SchemeGroupVersion.WithKind("Pod")}
	for kind := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		if one, isList := strings.CutSuffix(kind, "List"); isList {
			kinds = append(kinds, v1alpha1.GroupVersion.WithKind(one))
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.Kind, b.Kind) })
	return kinds
}
