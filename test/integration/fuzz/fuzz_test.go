// Package fuzz runs the operator, as a process of its own with its webhooks, against objects of all
// kinds that are generated from the schemas of the CustomResourceDefinitions. Most objects are
// valid, and some contain hostile values. It needs the KUBECONFIG of a real API server, and no other
// operator may run there.
//
//	FUZZ_SEED=7            repeats the objects of an earlier run
//	SOAK_DURATION=30m      repeats rounds for this time (make soak)
package fuzz

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
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

const (
	namespaces  = 4
	minAccepted = 200 // the number of objects of each kind that the API server accepts in a round
	// settleTime is how long the operator has to reconcile all objects of a round. Then nothing
	// changes for quietTime, in which it must not repeat messages.
	settleTime, quietTime = 20 * time.Second, time.Minute
	maxMemory             = 256 << 20 // the memory limit of the operator's container
)

// In each round, four namespaces get objects of all kinds at the same time. The operator must not panic, restart, or repeat errors about objects
// that do not change, and all namespaces can be deleted.
func TestFuzzedObjectsDoNotDisturbTheOperator(t *testing.T) {
	env := newFuzzTest(t)
	duration := durationFromEnv(t)
	seed := seedFromEnv(t, duration)
	env.startOperator()
	end := time.Now().Add(duration)
	for round := uint64(0); round == 0 || time.Now().Before(end); round++ {
		env.runRound(seed, round)
		if t.Failed() {
			return
		}
	}
}

// fuzzTest is a cluster with an operator, and what was sent to it in this round.
type fuzzTest struct {
	*testenv.Cluster

	t        *testing.T
	kinds    []kind
	operator *operator
	brokers  map[string]string // the URLs in the Secrets that Queues and WorkerPools refer to, by name

	mu                         sync.Mutex
	accepted, rejected, causes map[string]int
	changes                    map[objectKey]int
}

func (env *fuzzTest) runRound(seed, round uint64) {
	env.accepted, env.rejected, env.causes = map[string]int{}, map[string]int{}, map[string]int{}
	env.changes = map[objectKey]int{}
	group, ctx := errgroup.WithContext(env.t.Context())
	for i := range namespaces {
		ns := namespaceName(i)
		env.createNamespace(ns, i)
		g := generator{rand.New(rand.NewPCG(seed, round*namespaces+uint64(i)))}
		group.Go(func() error { return env.changeObjects(ctx, g, ns) })
	}
	require.NoError(env.t, group.Wait())
	env.checkAccepted(round)
	env.sleep(settleTime)
	env.checkQuiet()
	for i := range namespaces {
		testenv.SaveObjectsOfFailedTest(env.t.Context(), env.t, env, namespaceName(i))
	}
	env.deleteNamespaces()
	env.operator.checkRunning(env.t)
	env.operator.checkLog(env.t, env.changes)
}

func namespaceName(i int) string { return fmt.Sprintf("fuzz-%d", i) }

// seedFromEnv returns the same seed for each single round, so that a change cannot fail because of
// an object that it has nothing to do with, and a new one for each longer run.
func seedFromEnv(t *testing.T, duration time.Duration) uint64 {
	text := os.Getenv("FUZZ_SEED")
	switch {
	case text != "":
	case duration == 0:
		text = "1"
	default:
		text = strconv.FormatInt(time.Now().UnixNano(), 10)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	t.Logf("FUZZ_SEED=%d", seed)
	return seed
}

func durationFromEnv(t *testing.T) time.Duration {
	text := os.Getenv("SOAK_DURATION")
	if text == "" {
		return 0
	}
	duration, err := time.ParseDuration(text)
	require.NoError(t, err)
	return duration
}

func (env *fuzzTest) sleep(d time.Duration) {
	env.t.Helper()
	select {
	case <-time.After(d):
	case <-env.t.Context().Done():
		env.t.Fatal(context.Cause(env.t.Context()))
	}
}

var cluster *testenv.Cluster

func TestMain(m *testing.M) { testenv.Main(m, "make soak", testenv.WithCRDs(&cluster)) }

// kind is one of the operator's kinds. The spec is nil if the kind has none.
type kind struct {
	schema.GroupVersionKind

	spec *schemaProps
}

func newFuzzTest(t *testing.T) *fuzzTest {
	ctrl.SetLogger(logr.Discard())
	return &fuzzTest{Cluster: cluster, t: t, kinds: readKinds(t), brokers: map[string]string{
		"a": "nats://" + natstest.Start(t).Address(), "b": redistest.Start(t).URL(),
		"c": "\x00 not a URL %zz", "default": "nats://127.0.0.1:1", "worker": "redis://127.0.0.1:1",
	}}
}

func readKinds(t *testing.T) []kind {
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

// createNamespace creates a namespace with Secrets and ConfigMaps that objects can refer to. A quota bounds the load on the cluster. The webhooks
// are disabled in every other namespace: then the operator sees what they would reject.
func (env *fuzzTest) createNamespace(name string, number int) {
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

func (env *fuzzTest) checkAccepted(round uint64) {
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

const maxAttempts = 40

// changeObjects creates, updates and deletes objects until the API server has accepted the namespace's share of new objects of each kind.
func (env *fuzzTest) changeObjects(ctx context.Context, g generator, ns string) error {
	accepted := map[string]int{}
	share := minAccepted / namespaces
	for range maxAttempts * share * len(env.kinds) {
		missing := slices.DeleteFunc(slices.Clone(env.kinds), func(k kind) bool { return accepted[k.Kind] >= share })
		if len(missing) == 0 {
			return nil
		}
		k := pick(g, missing...)
		created, err := env.changeOne(ctx, g, &k, ns)
		if err != nil {
			return err
		}
		if created {
			accepted[k.Kind]++
		}
	}
	return nil
}

// changeOne creates an object, or changes or deletes one that may exist.
func (env *fuzzTest) changeOne(ctx context.Context, g generator, k *kind, ns string) (created bool, err error) {
	object := g.newObject(k, ns)
	env.mu.Lock()
	env.changes[objectKey{k.Kind, ns, object.GetName()}]++
	env.mu.Unlock()
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

// generator makes random values that satisfy a schema and most of its rules. Equal random sources make equal values.
type generator struct{ *rand.Rand }

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
		for range 1 + g.IntN(3) {
			g.mutateOne(spec)
		}
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

// maxLine is the maximum length of a log line, whatever an object contains.
const maxLine = 16 << 10

type operator struct {
	*testenv.Operator
	started time.Time
}

func (env *fuzzTest) startOperator() {
	binary, err := testenv.BuildOperator()
	require.NoError(env.t, err)
	flags := append(testenv.MetricsFlags(), "--report-namespaces", namespaceName(0)+","+namespaceName(1),
		"--report-interval", "1m", "--queue-sweep", "10s", "--worker-image", "registry.example/worker:1")
	webhooks, err := cluster.InstallWebhooks(env.t.Context())
	require.NoError(env.t, err)
	env.t.Cleanup(func() { require.NoError(env.t, webhooks.Remove(context.Background())) })
	flags = append(flags, "--webhook=true", "--webhook-port", strconv.Itoa(webhooks.LocalServingPort), "--cert-dir", webhooks.LocalServingCertDir,
		"--operator-namespace", "default")
	process, err := testenv.StartOperator(env.t.Context(), binary, cluster, flags...)
	require.NoError(env.t, err)
	env.operator = &operator{process, time.Now()}
	env.t.Cleanup(process.Stop)
}

// checkRunning checks that the process has neither exited nor recovered from a panic, and that its memory stays within the limit of its container.
func (o *operator) checkRunning(t *testing.T) {
	select {
	case <-o.Exited():
		t.Fatalf("the operator exited: %s", o.State())
	default:
	}
	for _, metric := range []string{"controller_runtime_reconcile_panics_total", "controller_runtime_webhook_panics_total"} {
		panics := o.metricSum(t, metric)
		require.True(t, panics == 0, "%s is %v", metric, panics)
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

// checkLog checks that the operator logs at most one line about an object in a minute, and another one for each change of the object.
func (o *operator) checkLog(t *testing.T, changes map[objectKey]int) {
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

type schemaProps = apiextensionsv1.JSONSchemaProps

// sharedNames are names of objects, keys and containers. All kinds use them, so that references
// often lead to an object that exists, was deleted, or is of a surprising kind.
var sharedNames = []string{"a", "b", "c", "default", "jobs", "runner", "step", "worker"}

func (g generator) chance(probability float64) bool { return g.Float64() < probability }
func pick[T any](g generator, values ...T) T        { return values[g.IntN(len(values))] }

func (g generator) value(s *schemaProps, property string) any {
	switch {
	case len(s.Enum) > 0:
		return decode(pick(g, s.Enum...).Raw)
	case s.XIntOrString && s.Pattern != "":
		return pick[any](g, "1", "10m", "64Mi", "1Gi", "0", "1.5", int64(g.IntN(8)))
	case s.XIntOrString:
		return pick[any](g, fmt.Sprintf("%d%%", g.IntN(101)), int64(g.IntN(8)))
	case s.Type == "object":
		return g.object(s)
	case s.Type == "array":
		return g.array(s, property)
	case s.Type == "string":
		return g.text(s, property)
	case s.Type == "integer":
		return g.integer(s)
	case s.Type == "number":
		return g.Float64() * 2
	case s.Type == "boolean":
		return g.chance(0.5)
	default: // any JSON value
		return pick[any](g, nil, "text", int64(1), []any{}, map[string]any{"a": []any{"b"}})
	}
}

func decode(raw []byte) any {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		panic(err)
	}
	return value
}

// object returns the required properties and a few others, so that objects stay small even if a schema has as many properties as that of a Pod.
func (g generator) object(s *schemaProps) map[string]any {
	object := map[string]any{}
	var optional []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if slices.Contains(s.Required, name) {
			object[name] = g.property(s, name)
		} else if name != "finalizers" { // a user's finalizer keeps an object for as long as the user likes
			optional = append(optional, name)
		}
	}
	g.Shuffle(len(optional), func(i, j int) { optional[i], optional[j] = optional[j], optional[i] })
	for _, name := range optional[:min(len(optional), pick(g, 0, 1, 1, 2, 3, 5))] {
		object[name] = g.property(s, name)
	}
	if slices.Contains(optional, "image") && g.chance(0.8) {
		object["image"] = g.property(s, "image")
	}
	g.satisfyAlternatives(s, object)
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		for range g.IntN(3) {
			object[pick(g, "cpu", "memory", "A", "B_1", "example.com/key")] = g.value(s.AdditionalProperties.Schema, "")
		}
	}
	return object
}

var (
	// oneOfRule matches rules that demand exactly one of several properties.
	oneOfRule = regexp.MustCompile(`^has\(self\.\w+\) != has\(self\.\w+\)$|^(\(has\(self\.\w+\)\?1:0\)\+?)+ == 1$|^\[(has\(self\.\w+\)(, )?)+\]\.filter\(is, is\)\.size\(\) == 1$`)
	hasField  = regexp.MustCompile(`has\(self\.(\w+)\)`)
)

// satisfyAlternatives keeps or adds one of the properties of which rules demand exactly one.
func (g generator) satisfyAlternatives(s *schemaProps, object map[string]any) {
	for _, rule := range s.XValidations {
		if !oneOfRule.MatchString(rule.Rule) {
			continue
		}
		fields := hasField.FindAllStringSubmatch(rule.Rule, -1)
		chosen := pick(g, fields...)[1]
		for _, field := range fields {
			delete(object, field[1])
		}
		object[chosen] = g.property(s, chosen)
	}
}

func (g generator) property(s *schemaProps, name string) any {
	property := s.Properties[name]
	return g.value(&property, name)
}

func (g generator) array(s *schemaProps, property string) []any {
	items, seen := []any{}, map[string]bool{}
	shortest := 0
	if s.MinItems != nil {
		shortest = int(*s.MinItems)
	}
	for range shortest + pick(g, 0, 1, 1, 2) {
		item := g.value(s.Items.Schema, property)
		if key := itemKey(s, item); key == "" || !seen[key] {
			seen[key] = true
			items = append(items, item)
		}
	}
	return items
}

// itemKey returns what distinguishes an item from others, or the empty string if items can be equal.
func itemKey(s *schemaProps, item any) string {
	if s.XListType == nil {
		return ""
	}
	object, _ := item.(map[string]any)
	switch *s.XListType {
	case "set":
		return fmt.Sprint(item)
	case "map":
		key := "key"
		for _, name := range s.XListMapKeys {
			key += fmt.Sprintf("/%v", object[name])
		}
		return key
	default:
		return ""
	}
}

func (g generator) integer(s *schemaProps) any {
	lowest, highest := int64(0), int64(math.MaxInt32)
	if s.Minimum != nil {
		lowest = int64(*s.Minimum)
	}
	if s.Maximum != nil {
		highest = int64(*s.Maximum)
	}
	switch {
	case g.chance(0.05):
		return highest
	case g.chance(0.1):
		return lowest
	case g.chance(0.2):
		return lowest + g.Int64N(highest-lowest+1)
	default:
		return min(lowest+g.Int64N(5), highest)
	}
}

// text returns a string that the rules of the schema allow, or, if they do not say, one that suits the name of the property.
func (g generator) text(s *schemaProps, property string) string {
	var rules string
	for _, rule := range s.XValidations {
		rules += rule.Rule + "\n"
	}
	switch {
	case s.Format == "date-time":
		return time.Unix(g.Int64N(1<<32), 0).UTC().Format(time.RFC3339)
	case strings.Contains(rules, "duration(self)"):
		return g.duration(rules)
	case strings.Contains(rules, "isCIDR(self)") || property == "cidr" || property == "except":
		return pick(g, "10.0.0.0/8", "0.0.0.0/0", "fd00::/8", "192.0.2.1/32")
	case strings.Contains(rules, "isURL(self)"):
		return pick(g, "https://git.example/a/b.git", "ssh://git.example/a", "git@git.example:a/b")
	case strings.Contains(rules, "self.contains('/')"):
		return pick(g, "example.com/controller", "yardmaster.dev/sequentialjob-controller", "/")
	case property == "image" || strings.HasSuffix(property, "Images"):
		return pick(g, "registry.example/app:1", "app", "registry.example/*", "*")
	case property == "schedule" && g.chance(0.9):
		return pick(g, "* * * * *", "*/7 2-5 * * 1", "0 0 29 2 *", "@hourly", "30 2 * 3,10 0", "0 0 31 4 *")
	case property == "timeZone" && g.chance(0.9):
		return pick(g, "Etc/UTC", "Europe/Berlin", "Africa/Cairo")
	case property == "restartPolicy":
		return pick(g, "Always", "Never", "OnFailure")
	case s.Pattern != "":
		return shorten(s, g.matching(s.Pattern))
	default:
		return shorten(s, g.word())
	}
}

func (g generator) word() string {
	if g.chance(0.8) {
		return pick(g, sharedNames...)
	}
	return pick(g, "url", "10.0.0.1", "/data", "http://a.example", "x y", "ünïcode", "{}", strings.Repeat("w", g.IntN(300)+1))
}

func shorten(s *schemaProps, text string) string {
	if s.MaxLength != nil && int64(len(text)) > *s.MaxLength {
		return strings.ToValidUTF8(text[:*s.MaxLength], "")
	}
	return text
}

var (
	shortestRule = regexp.MustCompile(`duration\(self\) >= duration\('([^']+)'\)`)
	longestRule  = regexp.MustCompile(`duration\(self\) <= duration\('([^']+)'\)`)
)

func (g generator) duration(rules string) string {
	bound := func(rule *regexp.Regexp, otherwise time.Duration) time.Duration {
		if match := rule.FindStringSubmatch(rules); match != nil {
			if d, err := time.ParseDuration(match[1]); err == nil {
				return d
			}
		}
		return otherwise
	}
	shortest, longest := bound(shortestRule, 0), bound(longestRule, time.Hour)
	switch g.IntN(7) {
	case 0:
		return fmt.Sprintf("%ds", int64(shortest.Seconds()))
	case 1:
		return fmt.Sprintf("%.0fh", longest.Hours())
	default:
		return fmt.Sprintf("%ds", int64((shortest + time.Duration(g.Int64N(int64(min(longest-shortest, time.Minute))+1))).Seconds()))
	}
}

// reservedKeys are the labels and annotations with which the operator marks objects and users control it.
var reservedKeys = []string{
	"sequentialjob-uid", "sequentialjob", "step", "run", "generation", "spec-hash", "step-options", "suspended",
	"dead-letters", "abandon", "supersedes", "session", "session-uid", "attempt", "run-finished", "workerpool", "revision",
	"rollout-history", "image", "draining", "idle", "removable",
}

func (g generator) hostileText() string {
	return pick(g, "", " ", "-1", "0", "null", "{", "[]", "\n", "\x00", "\u202e", "💥", "../../etc/passwd", "{{.}}", "%s%n%!", "*",
		"kube-system", "yardmaster", "999999h999999h", "9223372036854775808", "1e308", "NaN", "-Inf", "9999999999999999999E",
		strings.Repeat("a", 300), strings.Repeat("é", 5000), strings.Repeat("\x01", 2000), strings.Repeat("long ", 20000))
}

func (g generator) hostileNumber() int64 {
	return pick[int64](g, -1, 0, math.MaxInt32, math.MaxInt32+1, math.MaxInt64, math.MinInt64, math.MinInt32)
}

func (g generator) mutateOne(object map[string]any) {
	names := slices.Sorted(maps.Keys(object))
	if len(names) == 0 {
		return
	}
	name := pick(g, names...)
	switch value := object[name].(type) {
	case map[string]any:
		if g.chance(0.1) {
			value[g.hostileText()] = g.hostileText()
		} else {
			g.mutateOne(value)
		}
	case []any:
		g.mutateItems(object, name, value)
	case string:
		object[name] = g.hostileText()
	case int64:
		object[name] = g.hostileNumber()
	default:
		object[name] = pick[any](g, nil, true, g.hostileText(), g.hostileNumber(), map[string]any{})
	}
}

func (g generator) mutateItems(object map[string]any, name string, items []any) {
	switch {
	case len(items) == 0 || g.chance(0.2):
		object[name] = append(items, g.hostileText())
	case g.chance(0.1): // many items
		for i := range 500 {
			items = append(items, fmt.Sprint(i))
		}
		object[name] = items
	default:
		if item, ok := pick(g, items...).(map[string]any); ok {
			g.mutateOne(item)
		} else {
			items[g.IntN(len(items))] = g.hostileText()
		}
	}
}

// reservedMetadata returns labels or annotations that only the operator should set, with any value.
func (g generator) reservedMetadata() map[string]any {
	metadata := map[string]any{}
	for range 1 + g.IntN(3) {
		metadata["yardmaster.dev/"+pick(g, reservedKeys...)] = pick(g, g.word(), g.hostileText())
	}
	return metadata
}

func (g generator) matching(expression string) string {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		panic(err)
	}
	var text strings.Builder
	g.write(&text, parsed.Simplify())
	return text.String()
}

func (g generator) write(text *strings.Builder, e *syntax.Regexp) {
	switch e.Op {
	case syntax.OpLiteral:
		text.WriteString(string(e.Rune))
	case syntax.OpCharClass:
		from := 2 * g.IntN(len(e.Rune)/2)
		// A negated class reaches up to the last code point. Its first few characters suffice.
		text.WriteRune(e.Rune[from] + rune(g.IntN(min(int(e.Rune[from+1]-e.Rune[from])+1, 26))))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		text.WriteByte('x')
	case syntax.OpCapture, syntax.OpConcat:
		for _, part := range e.Sub {
			g.write(text, part)
		}
	case syntax.OpAlternate:
		g.write(text, pick(g, e.Sub...))
	case syntax.OpQuest:
		g.repeat(text, e, g.IntN(2))
	case syntax.OpStar:
		g.repeat(text, e, g.IntN(6))
	case syntax.OpPlus:
		g.repeat(text, e, 1+g.IntN(6))
	default: // anchors and empty matches
	}
}

func (g generator) repeat(text *strings.Builder, e *syntax.Regexp, times int) {
	for range times {
		g.write(text, e.Sub[0])
	}
}
