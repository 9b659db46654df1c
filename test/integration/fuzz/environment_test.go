package fuzz

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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
