package fuzz

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

var cluster *testenv.Cluster

func TestMain(m *testing.M) { testenv.Main(m, "make soak", testenv.WithCRDs(&cluster)) }

// fuzzTest is a cluster with an operator, and what was sent to it in this round.
type fuzzTest struct {
	*testenv.Cluster

	t        *testing.T
	kinds    []kind
	operator *operator
	// brokers are the URLs in the Secrets that Queues and WorkerPools refer to, by name.
	brokers map[string]string

	mu                         sync.Mutex
	accepted, rejected, causes map[string]int
	changes                    map[objectKey]int
}

// kind is one of the operator's kinds. The spec is nil if the kind has none.
type kind struct {
	schema.GroupVersionKind

	spec *schemaProps
}

func newFuzzTest(t *testing.T) *fuzzTest {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	env := &fuzzTest{Cluster: cluster, t: t, kinds: readKinds(t), brokers: map[string]string{
		"a": "nats://" + natstest.Start(t).Address(), "b": redistest.Start(t).URL(),
		"c": "\x00 not a URL %zz", "default": "nats://127.0.0.1:1", "worker": "redis://127.0.0.1:1",
	}}
	return env
}

func readKinds(t *testing.T) []kind {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testenv.Root(), "config/crd/bases/*.yaml"))
	require.True(t, err == nil && len(files) != 0, "%v, %v", files, err)
	var kinds []kind
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var crd apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.Unmarshal(raw, &crd))
		version := crd.Spec.Versions[0]
		k := kind{GroupVersionKind: schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}}
		if spec, found := version.Schema.OpenAPIV3Schema.Properties["spec"]; found {
			k.spec = &spec
		}
		kinds = append(kinds, k)
	}
	return kinds
}

func (env *fuzzTest) startRound() {
	env.accepted, env.rejected, env.causes = map[string]int{}, map[string]int{}, map[string]int{}
	env.changes = map[objectKey]int{}
}

// createNamespace creates a namespace with Secrets and ConfigMaps that objects can refer to. A quota
// bounds the load on the cluster. The webhooks are disabled in every other namespace: then the
// operator sees what they would reject.
func (env *fuzzTest) createNamespace(name string, number int) {
	env.t.Helper()
	webhook := "on"
	if number%2 == 1 {
		webhook = "off"
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{testenv.WebhookLabel: webhook}}},
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: name}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("40"), corev1.ResourcePersistentVolumeClaims: resource.MustParse("20")},
		}},
	}
	for _, secret := range slices.Sorted(maps.Keys(env.brokers)) {
		metadata := metav1.ObjectMeta{Name: secret, Namespace: name, Labels: map[string]string{v1alpha1.LabelBroker: "true"}}
		data := map[string]string{"url": env.brokers[secret], "a": env.brokers["a"], "b": "text", "username": "u", "ca.crt": "no certificate"}
		objects = append(objects, &corev1.Secret{ObjectMeta: metadata, StringData: data}, &corev1.ConfigMap{ObjectMeta: metadata})
	}
	for _, object := range objects {
		require.NoError(env.t, env.Create(env.t.Context(), object))
	}
}

// checkAccepted checks that the API server accepted enough objects to test the operator.
func (env *fuzzTest) checkAccepted(round uint64) {
	env.t.Helper()
	for _, k := range env.kinds {
		env.t.Logf("round %d: %s: %d created, %d rejected", round, k.Kind, env.accepted[k.Kind], env.rejected[k.Kind])
		if env.accepted[k.Kind] < minAccepted {
			env.t.Errorf("%d objects of kind %s were accepted, want %d", env.accepted[k.Kind], k.Kind, minAccepted)
		}
	}
	if !env.t.Failed() && !testing.Verbose() {
		return
	}
	causes := slices.SortedFunc(maps.Keys(env.causes), func(a, b string) int { return env.causes[b] - env.causes[a] })
	for _, cause := range causes[:min(len(causes), 30)] {
		env.t.Logf("%d × %q", env.causes[cause], cause)
	}
}

func (env *fuzzTest) deleteNamespaces() {
	env.t.Helper()
	for i := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(i)}}
		require.NoError(env.t, env.Delete(env.t.Context(), ns))
	}
	var left corev1.NamespaceList
	err := poll.UntilNil(env.t.Context(), func() error {
		if err := env.List(env.t.Context(), &left); err != nil {
			return err
		}
		left.Items = slices.DeleteFunc(left.Items, func(ns corev1.Namespace) bool { return ns.Labels[testenv.WebhookLabel] == "" })
		if len(left.Items) > 0 {
			return fmt.Errorf("%d namespaces exist", len(left.Items))
		}
		return nil
	})
	if err != nil {
		for i := range left.Items {
			env.t.Errorf("the deletion of namespace %s does not complete: %+v", left.Items[i].Name, left.Items[i].Status.Conditions)
		}
		env.t.Fatal(err)
	}
}

// objectKey identifies an object in the operator's log.
type objectKey struct{ kind, namespace, name string }

// maxAttempts bounds the requests for each accepted object.
const maxAttempts = 40

// changeObjects creates, updates and deletes objects until the API server has accepted the
// namespace's share of new objects of each kind.
func (env *fuzzTest) changeObjects(ctx context.Context, g generator, ns string) error {
	accepted := map[string]int{}
	share := minAccepted / namespaces
	for range maxAttempts * share * len(env.kinds) {
		k, complete := env.nextKind(g, accepted, share)
		if complete {
			return nil
		}
		created, err := env.changeOne(ctx, g, k, ns)
		if err != nil {
			return err
		}
		if created {
			accepted[k.Kind]++
		}
	}
	return nil
}

// nextKind returns a random kind of which objects are still missing.
func (env *fuzzTest) nextKind(g generator, accepted map[string]int, share int) (k *kind, complete bool) {
	var missing []*kind
	for i := range env.kinds {
		if accepted[env.kinds[i].Kind] < share {
			missing = append(missing, &env.kinds[i])
		}
	}
	if len(missing) == 0 {
		return nil, true
	}
	return pick(g, missing...), false
}

// changeOne creates an object, or changes or deletes one that may exist.
func (env *fuzzTest) changeOne(ctx context.Context, g generator, k *kind, ns string) (created bool, err error) {
	object := g.newObject(k, ns)
	env.countChange(objectKey{k.Kind, ns, object.GetName()})
	if g.chance(0.1) {
		policy := pick(g, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan)
		return false, unexpectedError(k, env.Delete(ctx, object, client.PropagationPolicy(policy)))
	}
	err = env.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		return false, unexpectedError(k, env.replace(ctx, object))
	}
	env.countRequest(k, err)
	return err == nil, unexpectedError(k, err)
}

// replace gives an existing object the metadata and the spec of another.
func (env *fuzzTest) replace(ctx context.Context, object *unstructured.Unstructured) error {
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(object.GroupVersionKind())
	if err := env.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return err
	}
	existing.Object["spec"] = object.Object["spec"]
	if object.Object["spec"] == nil {
		delete(existing.Object, "spec")
	}
	existing.SetLabels(object.GetLabels())
	existing.SetAnnotations(object.GetAnnotations())
	return env.Update(ctx, existing)
}

// unexpectedError returns an error unless the request was successful or its object was rejected.
func unexpectedError(k *kind, err error) error {
	switch {
	case err == nil, apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsConflict(err),
		apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsRequestEntityTooLargeError(err):
		return nil
	default:
		return fmt.Errorf("%s: %w", k.Kind, err)
	}
}

// newObject returns an object with a random name, metadata and spec.
func (g generator) newObject(k *kind, ns string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(k.GroupVersionKind)
	object.SetNamespace(ns)
	object.SetName(g.objectName())
	metadata, _ := object.Object["metadata"].(map[string]any)
	if g.chance(0.1) {
		metadata["annotations"] = g.reservedMetadata()
	}
	if g.chance(0.1) {
		metadata["labels"] = g.reservedMetadata()
	}
	if k.spec == nil {
		return object
	}
	spec, _ := g.value(k.spec, "spec").(map[string]any)
	if g.chance(0.3) {
		g.mutate(spec)
	}
	object.Object["spec"] = spec
	return object
}

func (g generator) objectName() string {
	switch {
	case g.chance(0.3):
		return pick(g, sharedNames...)
	case g.chance(0.05):
		return pick(g, strings.Repeat("x", 52), strings.Repeat("x", 63), strings.Repeat("x", 253), "0a", "a.b-c.d", "yardmaster")
	default:
		return fmt.Sprintf("n%04d", g.IntN(10000))
	}
}

// countRequest counts the requests that created an object, and the rejections by their cause.
func (env *fuzzTest) countRequest(k *kind, err error) {
	env.mu.Lock()
	defer env.mu.Unlock()
	if err == nil {
		env.accepted[k.Kind]++
		return
	}
	env.rejected[k.Kind]++
	cause := err.Error()
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		cause = cmp.Or(firstCause(status.Status()), cause)
	}
	env.causes[k.Kind+": "+cause[:min(len(cause), 150)]]++
}

func firstCause(s metav1.Status) string {
	if s.Details == nil || len(s.Details.Causes) == 0 {
		return ""
	}
	return s.Details.Causes[0].Field + ": " + s.Details.Causes[0].Message
}

func (env *fuzzTest) countChange(key objectKey) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.changes[key]++
}

// maxLine is the maximum length of a log line, whatever an object contains.
const maxLine = 16 << 10

// operator is the operator's process.
type operator struct {
	*testenv.Operator
	started time.Time
}

func (env *fuzzTest) startOperator() {
	env.t.Helper()
	binary, err := testenv.BuildOperator()
	require.NoError(env.t, err)
	flags := append(testenv.MetricsFlags(), "--report-namespaces", namespaceName(0)+","+namespaceName(1),
		"--report-interval", "1m", "--queue-sweep", "10s", "--worker-image", "registry.example/worker:1")
	webhooks, err := cluster.InstallWebhooks(env.t.Context())
	require.NoError(env.t, err)
	env.t.Cleanup(func() {
		require.NoError(env.t, webhooks.Remove(context.Background()))
	})
	flags = append(flags, "--webhook=true", "--webhook-port", strconv.Itoa(webhooks.LocalServingPort), "--cert-dir", webhooks.LocalServingCertDir,
		"--operator-namespace", "default")
	process, err := testenv.StartOperator(env.t.Context(), binary, cluster, flags...)
	require.NoError(env.t, err)
	env.operator = &operator{process, time.Now()}
	env.t.Cleanup(process.Stop)
}

// checkRunning checks that the process has neither exited nor recovered from a panic, and that its
// memory stays within the limit of its container.
func (o *operator) checkRunning(t *testing.T) {
	t.Helper()
	select {
	case <-o.Exited():
		t.Fatalf("the operator exited: %s", o.State())
	default:
	}
	for _, metric := range []string{"controller_runtime_reconcile_panics_total", "controller_runtime_webhook_panics_total"} {
		if panics := o.metricSum(t, metric); panics > 0 {
			t.Errorf("%s is %v", metric, panics)
		}
	}
	now, peak, err := harness.ProcessMemory(o.Pid())
	require.NoError(t, err)
	t.Logf("resident memory: %d MiB, at most %d MiB", now>>20, peak>>20)
	require.True(t, peak <= maxMemory, "the operator used %d MiB, want at most %d MiB", peak>>20, maxMemory>>20)
}

func (o *operator) metricSum(t *testing.T, name string) float64 {
	t.Helper()
	families, err := harness.OperatorMetrics(t.Context(), o.Operator)
	require.NoError(t, err)
	sum := 0.0
	for _, metric := range families[name].GetMetric() {
		sum += metric.GetCounter().GetValue()
	}
	return sum
}

// checkQuiet checks that the operator neither logs more than one line about an object nor has more
// than one error for each object while nothing changes.
func (env *fuzzTest) checkQuiet() {
	env.t.Helper()
	const errorsTotal = "controller_runtime_reconcile_errors_total"
	logged, failed := env.operator.countLines(env.t), env.operator.metricSum(env.t, errorsTotal)
	env.sleep(quietTime)
	for key, lines := range env.operator.countLines(env.t) {
		if repeated := len(lines) - len(logged[key]); repeated > 1 {
			env.t.Errorf("%d log lines about %v while nothing changed; the last one is %s", repeated, key, lines[len(lines)-1])
		}
	}
	env.t.Logf("%v errors while nothing changed", env.operator.metricSum(env.t, errorsTotal)-failed)
}

// checkLog checks that the operator logs at most one line about an object in a minute, and another
// one for each change of the object.
func (o *operator) checkLog(t *testing.T, changes map[objectKey]int) {
	t.Helper()
	minutes := int(time.Since(o.started).Minutes()) + 1
	for key, lines := range o.countLines(t) {
		if want := minutes + changes[key]; key.namespace != "" && len(lines) > want {
			t.Errorf("%d log lines about %v in %d minutes, want at most %d; the last one is %s", len(lines), key, minutes, want, lines[len(lines)-1])
		}
	}
}

// countLines returns the lines of the operator's log about each object. Lines about no object, such
// as those at the start of a controller, have no namespace.
func (o *operator) countLines(t *testing.T) map[objectKey][]string {
	t.Helper()
	log, err := os.ReadFile(o.LogFile)
	require.NoError(t, err)
	lines := map[objectKey][]string{}
	for text := range strings.Lines(string(log)) {
		var line struct {
			ControllerKind, Namespace, Name string
		}
		require.True(t, !strings.Contains(text, "panic") && len(text) <= maxLine, "the operator logged %d bytes: %.2000s", len(text), text)
		_ = json.Unmarshal([]byte(text), &line) // a line that is not JSON is about no object
		key := objectKey{line.ControllerKind, line.Namespace, line.Name}
		lines[key] = append(lines[key], text)
	}
	return lines
}
