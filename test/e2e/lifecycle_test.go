//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// The release that upgrades start from: see test/upgrade.
const (
	baselineManifest = root + "/test/upgrade/v0.1.0/install.yaml.gz"
	baselineImage    = "yardmaster:v0.1.0"
)

func upgrade(t *testing.T) {
	applyManifest(t, baselineManifest)
	must(t, waitForOperator(t.Context()))
	wantOperatorImage(t, baselineImage)

	s := createSequence(t, testbuilder.SequentialJob("upgraded", "").Step("long", held()).Step("next", script("true")).Obj())
	pod := s.podOf("long")
	must(t, deploy(t.Context(), someNamespaces))
	must(t, waitForOperator(t.Context()))
	wantOperatorImage(t, image())
	if now := s.podOf("long"); now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Fatal("the upgrade interrupted the running step")
	}
	s.letGo("long")
	s.untilPhase(v1alpha1.PhaseCompleted)
	s.wantEachStepOnce()
}

// applyManifest does what kubectl apply --server-side does.
func applyManifest(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(filepath.Clean(path))
	must(t, err)
	defer file.Close()
	content, err := gzip.NewReader(file)
	must(t, err)
	manifest, err := io.ReadAll(content)
	must(t, err)
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		must(t, cluster.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("yardmaster-install"), client.ForceOwnership))
	}
}

func wantOperatorImage(t *testing.T, want string) {
	t.Helper()
	if got := leader(t).Spec.Containers[0].Image; got != want {
		t.Fatalf("the operator's image is %s, want %s", got, want)
	}
}

func uninstall(t *testing.T) {
	finished := createSequenceIn(t, doomed, testbuilder.SequentialJob("finished", "").Step("a", script("true")).Obj())
	suspended := createSequenceIn(t, doomed, testbuilder.SequentialJob("suspended", "").SuspendImmediately().Step("a", held()).Obj())
	byHand := createSequence(t, testbuilder.SequentialJob("by-hand", "").Step("a", held()).Obj())
	waiting := createSequence(t, testbuilder.SequentialJob("waiting", "").Step("a", held()).Step("b", script("true")).Obj())
	suspended.podOf("a")
	must(t, suspended.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true }))
	suspended.untilPhase(v1alpha1.PhaseSuspended)
	suspended.untilNoFinalizer()
	finished.untilPhase(v1alpha1.PhaseCompleted)
	finished.untilNoFinalizer()
	running := []*corev1.Pod{byHand.podOf("a"), waiting.podOf("a")}

	must(t, undeploy(t.Context(), someNamespaces))
	wantNothingInstalled(t)

	// A namespace without running steps is deleted at once.
	finished.delete()
	wantGone(t, finished.sj)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomed}}
	must(t, cluster.Delete(t.Context(), ns))
	wantGone(t, ns)

	// Running steps continue, and a finalizer keeps their SequentialJobs.
	for i, s := range []*story{byHand, waiting} {
		s.delete()
		if !exists(t, s.sj) || !controllerutil.ContainsFinalizer(s.sj, v1alpha1.SequentialJobFinalizer) {
			t.Errorf("%s was deleted while its step runs", s.sj.Name)
		}
		if !exists(t, running[i]) || !running[i].DeletionTimestamp.IsZero() {
			t.Errorf("the step of %s was stopped", s.sj.Name)
		}
	}
	must(t, byHand.patch(func(sj *v1alpha1.SequentialJob) { sj.Finalizers = nil }))
	wantGone(t, byHand.sj)
	wantGone(t, running[0])

	must(t, createNamespace(t.Context(), doomed, "restricted"))
	must(t, deploy(t.Context(), someNamespaces))
	wantGone(t, waiting.sj)
	if exists(t, running[1]) {
		t.Error("the SequentialJob was deleted before the Pod of its step")
	}
	must(t, waitForOperator(t.Context()))
}

// wantNothingInstalled checks that of the operator's manifests only the CRDs are left.
func wantNothingInstalled(t *testing.T) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}
	wantGone(t, ns)
	for _, list := range []client.ObjectList{
		&appsv1.DeploymentList{},
		&corev1.ServiceAccountList{},
		&corev1.SecretList{},
		&rbacv1.RoleList{},
		&rbacv1.RoleBindingList{},
		&rbacv1.ClusterRoleList{},
		&rbacv1.ClusterRoleBindingList{},
		&admissionregistrationv1.ValidatingWebhookConfigurationList{},
		&admissionregistrationv1.MutatingWebhookConfigurationList{},
	} {
		must(t, cluster.List(t.Context(), list, client.MatchingLabels{"app.kubernetes.io/name": operatorName}))
		if n := meta.LenList(list); n != 0 {
			t.Errorf("%d objects of %T are left", n, list)
		}
	}
}

func clusterWide(t *testing.T) {
	must(t, undeploy(t.Context(), someNamespaces))
	must(t, deploy(t.Context(), allNamespaces))
	must(t, waitForOperator(t.Context()))
	t.Cleanup(func() {
		if err := undeploy(context.Background(), allNamespaces); err != nil {
			t.Error(err)
		}
	})

	ns := &corev1.Namespace{}
	ns.GenerateName = "e2e-new-"
	must(t, cluster.Create(t.Context(), ns))
	refused := prepare(ns.Name, testbuilder.SequentialJob("refused", "").Step("a", testbuilder.StepImage("")).Obj())
	if err := cluster.Create(t.Context(), refused); !apierrors.IsInvalid(err) {
		t.Errorf("a step without an image: %v", err)
	}
	done := createSequenceIn(t, ns.Name, countdown("done", 3))
	done.untilPhase(v1alpha1.PhaseCompleted)
	done.wantEachStepOnce()

	// A namespace with a running sequence can be deleted.
	running := createSequenceIn(t, ns.Name, testbuilder.SequentialJob("running", "").Step("a", held()).Obj())
	running.podOf("a")
	start := time.Now()
	must(t, cluster.Delete(t.Context(), ns))
	wantGone(t, ns)
	t.Logf("the namespace was deleted after %v", since(start))
}

// The objects of a namespace are deleted in no defined order. This test enforces the worst one:
// the operator's permissions are deleted before all objects with its finalizers.
func namespaceGoes(t *testing.T) {
	o := newQueueEnv(t, condemned)
	o.createQueue("purged", func(q *v1alpha1.Queue) { q.Spec.DeletionPolicy = v1alpha1.DeletionPurge })
	o.createPool(func(pool *v1alpha1.WorkerPool) { setFixedReplicas(pool, 2, 2) })
	o.waitUntilWorkers(2)
	o.sendBatch(jobBatch{queue: "orders", run: "job", jobs: 100, rate: 100, takes: time.Second})
	o.waitUntilInFlight(4)
	s := createSequenceIn(t, condemned, testbuilder.SequentialJob("running", "").Step("a", script("trap exit TERM; sleep 3600 & wait")).Obj())
	s.podOf("a")

	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: operatorName, Namespace: condemned}}
	must(t, cluster.Delete(t.Context(), binding))
	eventually(t, "the operator to have lost its permissions", func() bool {
		return !slices.Contains(permissions(t, condemned), "patch pods")
	})
	o.runKubectl("delete", "workerpools,queues", "--all", "--wait=false")
	s.delete()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: condemned}}
	for _, object := range []client.Object{s.sj, o.getPool()} {
		if !exists(t, object) || len(object.GetFinalizers()) == 0 {
			t.Errorf("%s lost its finalizer although its namespace is not terminating", object.GetName())
		}
	}
	start := time.Now()
	must(t, cluster.Delete(t.Context(), ns))
	wantGone(t, ns)
	t.Logf("the namespace was deleted after %v", since(start))

	// Later tests need the operator, which needs all watched namespaces when it restarts.
	must(t, createNamespace(t.Context(), condemned, "restricted"))
	must(t, deploy(t.Context(), someNamespaces))
	must(t, waitForOperator(t.Context()))
}
