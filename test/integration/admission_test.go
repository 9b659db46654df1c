package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/test/permissions"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// restrictedOperator is the ServiceAccount of an operator for all namespaces, with the admission policies of the installation.
type restrictedOperator struct {
	*deployment
	t      *testing.T
	client client.Client
	// owner of the operator's objects in the namespace watched. The WorkerPool controller of these tests does not reconcile it.
	owner *v1alpha1.WorkerPool
}

func newRestrictedOperator(t *testing.T) *restrictedOperator {
	t.Helper()
	o := &restrictedOperator{deployment: installPermissions(t, "*", true), t: t}
	o.client = newClientOf(t, o.account())
	o.restrict()
	o.owner = &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: o.watched, Name: "owner"}}
	o.owner.Spec.Image, o.owner.Spec.Replicas, o.owner.Spec.Queues = "worker:1", new(int32(0)), []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: "none"}}}
	o.create(o.owner)
	return o
}

func newClientOf(t *testing.T, account string) client.Client {
	t.Helper()
	return impersonate(t, account, permissions.Groups(account)...)
}

func impersonate(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return newClient(t, as)
}

// admissionPolicies are those of the installation, which the first test that needs them creates for all. They restrict
// all restrictedOperators, and nobody else except in namespaces with isolationLabel.
var admissionPolicies struct {
	sync.Once
	installed []client.Object
	succeeded bool
}

// isolationLabel marks the namespaces in which only a restrictedOperator may change the NetworkPolicy that isolates
// sessions. The operator of all tests is not one of them.
const isolationLabel = "test.yardmaster.dev/isolation"

func installAdmissionPolicies(t *testing.T) {
	t.Helper()
	manifest := testenv.Run(t, "kustomize", "build", "config/shared")
	for _, object := range testenv.Decode(t, manifest) {
		if !strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") || object.GetName() == "yardmaster-namespaces" {
			continue
		}
		object.SetName(object.GetName() + "-test")
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			_ = unstructured.SetNestedField(object.Object, object.GetName(), "spec", "policyName")
			if strings.HasPrefix(object.GetName(), "yardmaster-default-deny") {
				_ = unstructured.SetNestedField(object.Object, "on", "spec", "matchResources", "namespaceSelector", "matchLabels", isolationLabel)
			}
		}
		require.NoError(t, cluster.Create(t.Context(), object))
		admissionPolicies.installed = append(admissionPolicies.installed, object)
	}
	ns := namespace(t)
	owner := clientWithRoles(t, ns, "owner", "yardmaster-session-view", "yardmaster-session-edit")
	other := clientWithRoles(t, ns, "other", "yardmaster-session-view", "yardmaster-session-edit")
	require.NoError(t, owner.Create(t.Context(), sessionWithSpec(ns, "canary", map[string]any{"prompt": "a"})))
	poll.Until(t, "the policy about the users of sessions to apply", func() bool {
		patch := client.RawPatch(mergePatch, []byte(`{"spec": {"suspend": true}}`))
		return apierrors.IsForbidden(other.Patch(t.Context(), sessionWithSpec(ns, "canary", nil), patch, client.DryRunAll))
	})
	admissionPolicies.succeeded = true
}

// waitForAdmissionPolicies returns once the policies exist, and that about the users of sessions, which applies to everybody, has an effect.
func waitForAdmissionPolicies(t *testing.T) {
	t.Helper()
	admissionPolicies.Do(func() { installAdmissionPolicies(t) })
	require.True(t, admissionPolicies.succeeded, "the admission policies were not installed: see the failure of another test")
}

func (o *restrictedOperator) restrict() {
	o.t.Helper()
	waitForAdmissionPolicies(o.t)
	watched := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.watched}}
	mustPatch(o.t, watched, client.RawPatch(mergePatch, []byte(`{"metadata":{"labels":{"`+isolationLabel+`":"on"}}}`)))
	for _, ns := range []string{"kube-system", o.watched} {
		poll.Until(o.t, "the admission policies to apply in "+ns, func() bool {
			return isDeniedByPolicy(o.client.Create(o.t.Context(), o.newObject("configmaps", ns, "canary"), client.DryRunAll))
		})
	}
	// Each takes effect at its own time.
	poll.Until(o.t, "the policy about runs to apply", func() bool {
		return isDeniedByPolicy(o.client.Create(o.t.Context(), testbuilder.SequentialJob("canary", o.watched).Step("a").Obj(), client.DryRunAll))
	})
	poll.Until(o.t, "the policy about the isolation of sessions to apply", func() bool {
		return isDeniedByPolicy(cluster.Create(o.t.Context(), agenticsession.NewDefaultDenyPolicy(o.watched), client.DryRunAll))
	})
}

// create creates an object as an administrator, until the end of the test.
func (o *restrictedOperator) create(object client.Object) {
	o.t.Helper()
	require.NoError(o.t, cluster.Create(o.t.Context(), object))
	o.t.Cleanup(func() { require.NoError(o.t, client.IgnoreNotFound(cluster.Delete(context.Background(), object))) })
}

func isDeniedByPolicy(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'yardmaster-")
}

func wantDenied(t *testing.T, request string, err error) {
	t.Helper()
	if !isDeniedByPolicy(err) {
		t.Errorf("%s: %v, want a denial by an admission policy", request, err)
	}
}

func wantAllowed(t *testing.T, request string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", request, err)
	}
}

// manifests of the kinds that the operator writes, without metadata, by their resource.
var manifests = map[string]string{
	"configmaps":                             `{"apiVersion": "v1", "kind": "ConfigMap"}`,
	"persistentvolumeclaims":                 `{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}`,
	"pods":                                   `{"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "none", "containers": [{"name": "a", "image": "a"}]}}`,
	"secrets":                                `{"apiVersion": "v1", "kind": "Secret"}`,
	"serviceaccounts":                        `{"apiVersion": "v1", "kind": "ServiceAccount"}`,
	"services":                               `{"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None"}}`,
	"deployments.apps":                       `{"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "a"}}, "template": {"metadata": {"labels": {"a": "a"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}}}`,
	"statefulsets.apps":                      `{"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 0, "serviceName": "a", "selector": {"matchLabels": {"a": "a"}}, "template": {"metadata": {"labels": {"a": "a"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}}}`,
	"jobs.batch":                             `{"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}}`,
	"leases.coordination.k8s.io":             `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}`,
	"networkpolicies.networking.k8s.io":      `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}}}`,
	"poddisruptionbudgets.policy":            `{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"maxUnavailable": 1}}`,
	"roles.rbac.authorization.k8s.io":        `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["a"], "verbs": ["get"]}]}`,
	"rolebindings.rbac.authorization.k8s.io": `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}`,
}

// newObject returns an object without labels and owner. Its name ends as those of sessions' Roles do.
func (o *restrictedOperator) newObject(resource, ns, name string) *unstructured.Unstructured {
	o.t.Helper()
	manifest, known := manifests[resource]
	require.True(o.t, known, "the operator may write %s, and this test does not know that resource", resource)
	object := &unstructured.Unstructured{}
	require.NoError(o.t, json.Unmarshal([]byte(manifest), &object.Object))
	object.SetNamespace(ns)
	object.SetName(name + "-session")
	if object.GetKind() == "RoleBinding" { // its Role must exist
		o.create(o.newObject("roles.rbac.authorization.k8s.io", ns, name))
		object.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": object.GetName()}
		object.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": object.GetName(), "namespace": ns}}
	}
	return object
}

// newOwnObject returns an object with the labels and the owner that the operator sets.
func (o *restrictedOperator) newOwnObject(resource, ns, name string) *unstructured.Unstructured {
	o.t.Helper()
	object := o.newObject(resource, ns, name)
	object.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, workerpool.LabelWorkerPool: o.owner.Name})
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkerPool", Name: o.owner.Name, UID: o.owner.UID, Controller: new(true),
	}})
	return object
}

// attempt makes a request as the operator, in a dry run.
func (o *restrictedOperator) attempt(verb string, object *unstructured.Unstructured) error {
	o.t.Helper()
	ctx, object := o.t.Context(), object.DeepCopy()
	switch verb {
	case "create":
		return o.client.Create(ctx, object, client.DryRunAll)
	case "patch":
		return o.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": {"changed": "true"}}}`)), client.DryRunAll)
	case "update":
		object.SetAnnotations(map[string]string{"changed": "true"})
		return o.client.Update(ctx, object, client.DryRunAll)
	case "delete":
		return o.client.Delete(ctx, object, client.DryRunAll)
	}
	o.t.Fatalf("this test does not know the verb %s", verb)
	return nil
}

// The admission policies of an installation restrict its operator beyond what RBAC can express.
func TestAdmissionPoliciesRestrictTheOperator(t *testing.T) {
	t.Parallel()
	shared := newRestrictedOperator(t)
	for title, run := range map[string]func(*testing.T, *restrictedOperator){
		"it writes only its own objects":                                          writesOnlyItsOwnObjects,
		"it may try the Job and the Pod of a step":                                mayTryTheJobAndThePodOfAStep,
		"it cannot misuse its permissions":                                        cannotMisuseItsPermissions,
		"of a session's Pod, it removes only the workspace gate":                  removesOnlyTheWorkspaceGate,
		"of a session's Job, it changes only the deadline":                        changesOnlyTheDeadline,
		"it can restore its objects":                                              canRestoreItsObjects,
		"a ServiceAccount with its name in another namespace is not the operator": isNotItsNamesake,
		"it can write its Lease and its key for workers":                          canWriteItsInstallation,
		"of SequentialJobs and sessions, it creates only runs of Schedules":       createsOnlyRunsOfSchedules,
		"it writes objects of proxies only by their name":                         writesObjectsOfProxiesOnlyByTheirName,
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			o := *shared
			o.t = t
			run(t, &o)
		})
	}
}

// Every write that the page of permissions lists is attempted: on the operator's own object, on one of
// somebody else, and on one that looks like its own in kube-system.
func writesOnlyItsOwnObjects(t *testing.T, o *restrictedOperator) {
	page := permissionsPage(t)
	for _, permission := range permissions.Union(page.Columns(permissions.WatchedNamespaces, watchingControllers...)) {
		verb, resource, _ := strings.Cut(permission, " ")
		isWrite := slices.Contains([]string{"create", "update", "patch", "delete"}, verb)
		if !isWrite || strings.Contains(resource, v1alpha1.GroupVersion.Group) || strings.HasPrefix(resource, "events.") {
			continue
		}
		t.Run(permission, func(t *testing.T) {
			t.Parallel()
			o := *o
			o.t = t
			name, _, _ := strings.Cut(resource, ".")
			name += "-" + verb // unique, as the subtests run beside each other
			own, foreign := o.newOwnObject(resource, o.watched, name+"-own"), o.newObject(resource, o.watched, name+"-foreign")
			system := o.newOwnObject(resource, "kube-system", o.watched+"-"+name)
			system.SetOwnerReferences(nil) // the garbage collector would delete it
			if verb != "create" {
				for _, object := range []*unstructured.Unstructured{own, foreign, system} {
					o.create(object)
				}
			}
			wantAllowed(t, "on its own object", o.attempt(verb, own))
			for where, object := range map[string]*unstructured.Unstructured{"on an object of somebody else": foreign, "in kube-system": system} {
				wantDenied(t, where, o.attempt(verb, object))
			}
		})
	}
}

func mayTryTheJobAndThePodOfAStep(t *testing.T, o *restrictedOperator) {
	sj := testbuilder.SequentialJob("tried", o.watched).Step("a").Obj()
	sj.UID = "tried"
	sj.Spec.Template = &v1alpha1.PodTemplate{}
	sj.Spec.Template.Labels = map[string]string{v1alpha1.LabelManagedBy: "Helm"}
	decision := sequentialjob.Decide(sequentialjob.Observation{SequentialJob: sj, Now: time.Now(), Answers: sequentialjob.Answers{DryRun: &sequentialjob.DryRunResult{}}})
	require.True(t, decision.CreateJob != nil, "no Job is created: %+v", decision)
	job := decision.CreateJob
	wantAllowed(t, "the Job", o.client.Create(t.Context(), job, client.DryRunAll))
	wantAllowed(t, "the Pod", o.client.Create(t.Context(), sequentialjob.PodOf(job), client.DryRunAll))
	wantDenied(t, "the Pod without a dry run", o.client.Create(t.Context(), sequentialjob.PodOf(job)))
}

// These attempts use the operator's permissions, labels and owners, for something that it never does.
func cannotMisuseItsPermissions(t *testing.T, o *restrictedOperator) {
	own := func(resource, name string, fields map[string]any) *unstructured.Unstructured {
		object := o.newOwnObject(resource, o.watched, name)
		maps.Copy(object.Object, fields)
		return object
	}
	subject := func(name string) []any {
		return []any{map[string]any{"kind": "ServiceAccount", "name": name, "namespace": o.watched}}
	}
	unowned := own("configmaps", "unowned", nil)
	unowned.SetOwnerReferences(nil)
	unlabeled := own("jobs.batch", "unlabeled", nil)
	unlabeled.SetLabels(nil)
	token := own("secrets", "token", map[string]any{"type": "kubernetes.io/service-account-token"})
	token.SetAnnotations(map[string]string{"kubernetes.io/service-account.name": "default"})
	lease := o.newObject("leases.coordination.k8s.io", o.operator, "another")
	for title, object := range map[string]*unstructured.Unstructured{
		"a ConfigMap with its labels but without an owner":  unowned,
		"a Job with an owner but without its labels":        unlabeled,
		"a Lease that is not its own in its namespace":      lease,
		"a Secret for the token of another ServiceAccount":  token,
		"a Role that allows reading Secrets":                own("roles.rbac.authorization.k8s.io", "reader", map[string]any{"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get"}}}}),
		"a Role for all Leases":                             own("roles.rbac.authorization.k8s.io", "leases", map[string]any{"rules": []any{map[string]any{"apiGroups": []any{"coordination.k8s.io"}, "resources": []any{"leases"}, "verbs": []any{"get"}}}}),
		"a RoleBinding to another ServiceAccount":           own("rolebindings.rbac.authorization.k8s.io", "stolen", map[string]any{"subjects": subject("default")}),
		"a RoleBinding to a ServiceAccount and another one": own("rolebindings.rbac.authorization.k8s.io", "shared", map[string]any{"subjects": append(subject("shared-session"), subject("default")...)}),
	} {
		t.Run("create "+title, func(t *testing.T) {
			wantDenied(t, "the attempt", o.client.Create(t.Context(), object, client.DryRunAll))
		})
	}
	t.Run("create a Pod that is not a dry run", func(t *testing.T) {
		wantDenied(t, "the attempt", o.client.Create(t.Context(), own("pods", "real", nil)))
	})
	for title, change := range map[string]struct{ resource, patch string }{
		"remove the label of the owner from a Deployment": {"deployments.apps", `{"metadata": {"labels": {"` + workerpool.LabelWorkerPool + `": null}}}`},
		"remove the label managed-by from a Job":          {"jobs.batch", `{"metadata": {"labels": {"` + v1alpha1.LabelManagedBy + `": null}}}`},
		"remove the owner of a Service":                   {"services", `{"metadata": {"ownerReferences": null}}`},
		"end a Pod":                                       {"pods", `{"spec": {"activeDeadlineSeconds": 1}}`},
		"add a label to a Pod":                            {"pods", `{"metadata": {"labels": {"a": "b"}}}`},
		"grant more in a Role":                            {"roles.rbac.authorization.k8s.io", `{"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}`},
	} {
		t.Run(title, func(t *testing.T) {
			object := own(change.resource, strings.ToLower(strings.ReplaceAll(title, " ", "-")), nil)
			o.create(object)
			wantDenied(t, "the attempt", o.client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(change.patch)), client.DryRunAll))
		})
	}
}

// An operator for some namespaces may patch three kinds in all namespaces, to remove its finalizers.
func TestElsewhereTheOperatorChangesOnlyFinalizers(t *testing.T) {
	t.Parallel()
	waitForAdmissionPolicies(t)
	d := installPermissions(t, "*", false)
	operator := newClientOf(t, d.account())
	owner := `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}]}}`
	for ns, isServed := range map[string]bool{d.watched: true, d.reported: false} {
		for kind, spec := range map[string]string{
			"Queue": "{}", "SequentialJob": "{containers: [{name: a, image: a}]}", "WorkerPool": "{queues: [{name: none}], image: a, replicas: 0}",
		} {
			object := newManifest(t, kind, ns, "patched", spec)
			object.SetFinalizers([]string{"test.yardmaster.dev/kept"})
			mustCreate(t, object)
			t.Cleanup(func() {
				require.NoError(t, cluster.Patch(context.Background(), object, client.RawPatch(mergePatch, []byte(`{"metadata": {"finalizers": null}}`))))
			})
			attempt := func(patch string) error {
				return operator.Patch(t.Context(), object.DeepCopy(), client.RawPatch(mergePatch, []byte(patch)), client.DryRunAll)
			}
			poll.Until(t, "the permissions and the policy to apply to a "+kind, func() bool { return isDeniedByPolicy(attempt(owner)) })
			for title, change := range map[string]struct {
				patch     string
				isAllowed bool
			}{
				"removing a finalizer":    {`{"metadata": {"finalizers": null}}`, true},
				"an owner":                {owner, false},
				"the spec":                {`{"spec": {"suspend": true, "priority": 3}}`, false},
				"a label":                 {`{"metadata": {"labels": {"a": "b"}}}`, isServed},
				"an annotation":           {`{"metadata": {"annotations": {"yardmaster.dev/dead-letters": "Purge", "yardmaster.dev/abandon": "true"}}}`, isServed},
				"a finalizer and a label": {`{"metadata": {"finalizers": null, "labels": {"a": "b"}}}`, isServed},
			} {
				want := wantDenied
				if change.isAllowed {
					want = wantAllowed
				}
				want(t, fmt.Sprintf("%s of a %s, served %t", title, kind, isServed), attempt(change.patch))
			}
		}
	}
}

// newGatedPod returns the Pod of a session, or of something else, that waits at a gate.
func (o *restrictedOperator) newGatedPod(name, label, gate string) *unstructured.Unstructured {
	o.t.Helper()
	pod := o.newOwnObject("pods", o.watched, name)
	pod.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, label: "owner"})
	pod.Object["spec"] = map[string]any{
		"schedulingGates": []any{map[string]any{"name": gate}}, "containers": []any{map[string]any{"name": "a", "image": "a"}},
	}
	o.create(pod)
	return pod
}

func removesOnlyTheWorkspaceGate(t *testing.T, o *restrictedOperator) {
	remove := func(pod *unstructured.Unstructured, more string) error {
		patch := `[{"op": "remove", "path": "/spec/schedulingGates"}` + more + `]`
		return o.client.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(patch)), client.DryRunAll)
	}
	pod := o.newGatedPod("gated", agenticsession.LabelSessionUID, agenticsession.WorkspaceGate)
	wantAllowed(t, "the workspace gate of a session's Pod", remove(pod, ""))
	for title, err := range map[string]error{
		"another gate":                 remove(o.newGatedPod("another", agenticsession.LabelSessionUID, "another.example/gate"), ""),
		"the gate of another Pod":      remove(o.newGatedPod("worker", workerpool.LabelWorkerPool, agenticsession.WorkspaceGate), ""),
		"the gate and the image":       remove(pod, `, {"op": "replace", "path": "/spec/containers/0/image", "value": "b"}`),
		"the gate and the node":        remove(pod, `, {"op": "add", "path": "/spec/nodeSelector", "value": {"a": "b"}}`),
		"the gate and the deadline":    remove(pod, `, {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1}`),
		"the gate and the tolerations": remove(pod, `, {"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}`),
	} {
		require.True(t, isDeniedByPolicy(err), "%s: %v, want a denial by an admission policy", title, err)
	}
}

func changesOnlyTheDeadline(t *testing.T, o *restrictedOperator) {
	job := o.newOwnObject("jobs.batch", o.watched, "limited")
	job.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, agenticsession.LabelSessionUID: "owner"})
	o.create(job)
	change := func(patch string) error {
		return o.client.Patch(t.Context(), job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	wantAllowed(t, "the deadline", change(`{"spec": {"activeDeadlineSeconds": 60}}`))
	for title, patch := range map[string]string{
		"parallelism":  `{"spec": {"activeDeadlineSeconds": 60, "parallelism": 2}}`,
		"suspend":      `{"spec": {"suspend": false}}`,
		"time to live": `{"spec": {"ttlSecondsAfterFinished": 1}}`,
		"retries":      `{"spec": {"backoffLimit": 3}}`,
		"replacement":  `{"spec": {"podReplacementPolicy": "Failed"}}`,
		"a label":      `{"metadata": {"labels": {"a": "b"}}}`,
	} {
		wantDenied(t, title, change(patch))
	}
}

// A user can remove labels or the owner from an object of the operator. The operator must still be able
// to restore it, or a drifted Deployment would never be scaled again.
func canRestoreItsObjects(t *testing.T, o *restrictedOperator) {
	unlabeled := o.newOwnObject("deployments.apps", o.watched, "unlabeled")
	unlabeled.SetLabels(nil)
	o.create(unlabeled)
	restored := `{"metadata": {"labels": {"` + v1alpha1.LabelManagedBy + `": "yardmaster", "` + workerpool.LabelWorkerPool + `": "owner"}}}`
	renamed := o.newOwnObject("services", o.watched, "renamed")
	renamed.SetLabels(map[string]string{v1alpha1.LabelManagedBy: "somebody", workerpool.LabelWorkerPool: o.owner.Name})
	o.create(renamed)
	for _, change := range []struct {
		object *unstructured.Unstructured
		patch  string
	}{
		{unlabeled, restored},
		{unlabeled, `{"spec": {"replicas": 0}}`},
		{renamed, restored},
		{renamed, `{"metadata": {"annotations": {"a": "b"}}}`},
	} {
		err := o.client.Patch(t.Context(), change.object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change.patch)), client.DryRunAll)
		require.True(t, err == nil, "patching %s with %s: %v", change.object.GetName(), change.patch, err)
	}
	retained := o.newOwnObject("persistentvolumeclaims", o.watched, "retained") // it outlives its owner
	retained.SetOwnerReferences(nil)
	wantAllowed(t, "creating a retained claim", o.attempt("create", retained))
}

// A namesake in the namespace of a tenant is neither restricted like the operator nor exempt like it.
func isNotItsNamesake(t *testing.T, o *restrictedOperator) {
	o.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.watched, Name: "namesake"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.watched, Name: "yardmaster"}},
	})
	namesake := newClientOf(t, "system:serviceaccount:"+o.watched+":yardmaster")
	poll.Until(t, "the namesake to create an object of its own", func() bool {
		return namesake.Create(t.Context(), o.newObject("configmaps", o.watched, "free"), client.DryRunAll) == nil
	})
	isolation := o.newObject("networkpolicies.networking.k8s.io", o.watched, "")
	isolation.SetName(agenticsession.DefaultDenyPolicyName)
	// Policies take effect independently of each other, and the operator is exempt from this one.
	poll.Until(t, "the NetworkPolicy that isolates sessions to be denied by an admission policy", func() bool {
		return isDeniedByPolicy(namesake.Create(t.Context(), isolation, client.DryRunAll))
	})
}

// The operator's Lease and key for workers have no owner.
func canWriteItsInstallation(t *testing.T, o *restrictedOperator) {
	lease := o.newObject("leases.coordination.k8s.io", o.operator, "")
	lease.SetName("yardmaster.yardmaster.dev")
	wantAllowed(t, "creating its Lease", o.attempt("create", lease))
	o.create(lease)
	key := o.newObject("secrets", o.operator, "")
	key.SetName("yardmaster-worker-admin")
	o.create(key)
	for _, object := range []*unstructured.Unstructured{lease, key} {
		wantAllowed(t, "patching "+object.GetName(), o.attempt("patch", object))
	}
	elsewhere := lease.DeepCopy()
	elsewhere.SetNamespace(o.watched)
	elsewhere.SetResourceVersion("")
	wantDenied(t, "creating a Lease of that name in another namespace", o.attempt("create", elsewhere))
}

func createsOnlyRunsOfSchedules(t *testing.T, o *restrictedOperator) {
	schedule := newScheduleOf(o.watched, "nightly")
	o.create(schedule)
	for title, row := range map[string]struct {
		owners []metav1.OwnerReference
		denied bool
	}{
		"of a Schedule":    {decision.ControllerReferences("Schedule", schedule), false},
		"without an owner": {nil, true},
		"of a WorkerPool":  {decision.ControllerReferences("WorkerPool", o.owner), true},
	} {
		t.Run(title, func(t *testing.T) {
			sequence := testbuilder.SequentialJob("run", o.watched).Step("a").Obj()
			session := sessionWithSpec(o.watched, "run", map[string]any{"prompt": "do it"})
			for _, object := range []client.Object{sequence, session} {
				object.SetOwnerReferences(row.owners)
				err := o.client.Create(t.Context(), object, client.DryRunAll)
				isDenied := isDeniedByPolicy(err)
				require.True(t, isDenied == row.denied && (isDenied || err == nil), "%T: %v, want a denial: %t", object, err, row.denied)
			}
		})
	}
}

var watchingControllers = []string{"agenticsession", "egressproxy", "policy", "queue", "schedule", "sequentialjob", "workerpool"}

func permissionsPage(t *testing.T) permissions.Page {
	t.Helper()
	page, err := permissions.ReadPage(filepath.Join(repositoryRoot, "docs", "reference", "permissions.md"))
	require.NoError(t, err)
	return page
}

// The operator of each deployment, and the gateway, have exactly the permissions on the page: for each controller alone
// and for all together, with Roles in some namespaces and with ClusterRoles.
func TestPermissionsEqualTheReferencePage(t *testing.T) {
	t.Parallel()
	page := permissionsPage(t)
	for _, controllers := range []string{"*", "*,-workerpool", "agenticsession", "egressproxy", "jobreport", "policy", "queue", "schedule", "sequentialjob", "workerpool"} {
		for _, clusterWide := range []bool{false, true} {
			scope := "some namespaces"
			if clusterWide {
				scope = "all namespaces"
			}
			t.Run(controllers+" in "+scope, func(t *testing.T) {
				t.Parallel()
				d := installPermissions(t, controllers, clusterWide)
				want := func(everywhere, own, watched, reported []string) {
					t.Helper()
					if clusterWide {
						everywhere = append(everywhere, watched...)
					}
					d.wantPermissions(t, d.operator, everywhere, own)
					d.wantPermissions(t, d.watched, everywhere, watched)
					d.wantPermissions(t, d.reported, everywhere, reported)
					d.wantPermissions(t, "kube-system", everywhere)
				}
				reported := page.Columns(permissions.ReportedNamespaces, "jobreport", "openreports")
				if !d.isEnabled("jobreport") {
					reported = nil
				}
				want(page.Columns(permissions.AllNamespaces, append([]string{"metrics", "admission policies", "identity", "API server"}, d.watching()...)...),
					page.Columns(permissions.OperatorNamespace, "leader election", "workers", "own Pod"),
					page.Columns(permissions.WatchedNamespaces, d.watching()...), reported)
				if controllers == "queue" {
					d.serviceAccount = gatewayAccount
					want(page.Columns(permissions.Gateway, "all namespaces"), page.Columns(permissions.Gateway, "own namespace"),
						page.Columns(permissions.Gateway, "served namespaces"), nil)
				}
			})
		}
	}
}

// deployment has the permissions of `make deploy` for a ServiceAccount of its own.
type deployment struct {
	controllers    string
	serviceAccount string // whose permissions are compared: that of the operator unless a test changes it
	// operator, watched and reported are namespaces: that of the operator, one in which its controllers work, and one that it reports on.
	operator, watched, reported string
}

func (d *deployment) account() string {
	return "system:serviceaccount:" + d.operator + ":" + d.serviceAccount
}

func (d *deployment) isEnabled(controller string) bool {
	selectors := strings.Split(d.controllers, ",")
	return slices.Contains(selectors, controller) || slices.Contains(selectors, "*") && !slices.Contains(selectors, "-"+controller)
}

func (d *deployment) watching() []string {
	return slices.DeleteFunc(slices.Clone(watchingControllers), func(name string) bool { return !d.isEnabled(name) })
}

// wantPermissions waits until the ServiceAccount has these permissions: the API server caches Roles.
func (d *deployment) wantPermissions(t *testing.T, ns string, lists ...[]string) {
	t.Helper()
	require.NoError(t, poll.UntilNil(t.Context(), func() error {
		got, err := permissions.OfServiceAccount(t.Context(), config, d.account(), ns)
		if diff := cmp.Diff(permissions.Union(lists...), got); err == nil && diff != "" {
			err = fmt.Errorf("permissions in %s (-want, +got):\n%s", ns, diff)
		}
		return err
	}))
}

// installPermissions creates the Roles and bindings that `make deploy` creates. The operator's namespace
// is that of the test, with which the names of objects without a namespace end, so that tests do not affect each other.
func installPermissions(t *testing.T, controllers string, clusterWide bool) *deployment {
	t.Helper()
	d := &deployment{controllers: controllers, serviceAccount: "yardmaster", operator: namespace(t), watched: namespace(t), reported: namespace(t)}
	names := strings.NewReplacer("overlay-operator", d.operator, "overlay-watched", d.watched, "overlay-reported", d.reported)
	for _, object := range bindingsAndRoles(t, names.Replace(overlayOf(t, controllers, clusterWide))) {
		mustCreate(t, object)
	}
	return d
}

// overlays are the manifests of installPermissions, which replaces the names of their namespaces.
var overlays sync.Map

// overlayOf builds the manifests for these controllers once for all tests.
func overlayOf(t *testing.T, controllers string, clusterWide bool) string {
	t.Helper()
	namespaces := "overlay-watched"
	if clusterWide {
		namespaces = "*"
	}
	directory := strings.NewReplacer("*", "all", ",", "-").Replace("permissions-" + controllers + "-in-" + namespaces)
	build, _ := overlays.LoadOrStore(directory, sync.OnceValue(func() string {
		return buildOverlay(t, directory, controllers, namespaces, "jobreport-openreports,gateway", "overlay-reported", "", "overlay-operator")
	}))
	return build.(func() string)()
}

// buildOverlay returns the manifests of `make deploy`. More arguments are those of hack/overlay.
func buildOverlay(t *testing.T, name, controllers, namespaces, components, reported string, more ...string) string {
	t.Helper()
	overlay := filepath.Join("dist", name) // it refers to ../../config
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(repositoryRoot, overlay)) })
	testenv.Run(t, "hack/overlay", append([]string{overlay, "yardmaster:dev", controllers, namespaces, components, reported}, more...)...)
	return testenv.Run(t, "kustomize", "build", overlay)
}

// bindingsAndRoles returns the bindings of a manifest and the Roles that they refer to. The others are for users.
func bindingsAndRoles(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	objects, bound := testenv.Decode(t, manifest), map[string]bool{}
	for _, object := range objects {
		if name, found, _ := unstructured.NestedString(object.Object, "roleRef", "name"); found {
			bound[name] = true
		}
	}
	return slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		isBoundRole := strings.HasSuffix(object.GetKind(), "Role") && bound[object.GetName()]
		return !isBoundRole && !strings.HasSuffix(object.GetKind(), "RoleBinding")
	})
}

func readManifests(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return testenv.Decode(t, string(raw))
}

// Users set the namespace in a kustomization of theirs, and the bindings, the webhooks and the names in certificates
// follow. In an installation for some namespaces, the Roles stay in these.
func TestManifestsFollowTheNamespaceOfAUsersKustomization(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, directory := range []string{"config", "examples/install"} {
		require.NoError(t, os.CopyFS(filepath.Join(root, directory), os.DirFS(filepath.Join(repositoryRoot, directory))))
	}
	components := []string{"admission-policy", "cert-manager", "default-broker", "gateway", "jobreport-alerts", "prometheus", "queue-alerts", "webhook-network-policy"}
	writeKustomization(t, filepath.Join(root, "config", "platform"), "namespace: platform\nresources: [../cluster-wide]\n", nil)
	writeKustomization(t, filepath.Join(root, "config", "platform-with-components"), "resources: [../platform]\n", components)
	writeKustomization(t, filepath.Join(root, "config", "teams-with-components"), "resources: [../../examples/install]\n", components)
	for directory, namespaces := range map[string][]string{
		"config/platform":                 {"platform"},
		"config/platform-with-components": {"platform"},
		"examples/install":                {"platform", "team-a", "team-b"},
		"config/teams-with-components":    {"platform", "team-a", "team-b"},
	} {
		t.Run(directory, func(t *testing.T) {
			manifest := testenv.Run(t, "kustomize", "build", filepath.Join(root, directory))
			for i, line := range strings.Split(manifest, "\n") {
				require.True(t, !strings.Contains(line, "yardmaster-system"), "line %d of the manifest still names the default namespace: %s", i+1, line)
			}
			for _, object := range testenv.Decode(t, manifest) {
				ns := object.GetNamespace()
				require.True(t, ns == "" || slices.Contains(namespaces, ns), "%s %s is in namespace %q", object.GetKind(), object.GetName(), ns)
			}
		})
	}
}

func TestWebhooksAreLimitedToTheWatchedNamespaces(t *testing.T) {
	t.Parallel()
	const condition = `"team-a,team-b".split(",").exists(watched, watched in ["", request.namespace])`
	manifest := buildOverlay(t, "limited-webhooks", "*", "team-a,team-b", "admission-policy", "")
	manifest += "---\n" + buildOverlay(t, "limited-mutating-webhook", "*", "team-a,team-b", "", "")
	// In each manifest, 6 webhooks, and two policies or webhooks that record users.
	require.Equal(t, 16, strings.Count(manifest, condition))
}

// Tools such as Argo CD compare the namespace of what they applied with that of the object.
func TestObjectsOfTheClusterHaveNoNamespace(t *testing.T) {
	t.Parallel()
	components := ""
	if hasMutatingAdmissionPolicies(t) {
		components = "admission-policy"
	}
	for name, namespaces := range map[string]string{"some": "team-a,team-b", "all": "*"} {
		manifest := buildOverlay(t, "no-namespace-"+name, "*", namespaces, components, "")
		manifest += "---\n" + testenv.Run(t, "kustomize", "build", "config/shared")
		for _, object := range testenv.Decode(t, manifest) {
			mapping, err := cluster.RESTMapper().RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
			require.NoError(t, err)
			namespaced, ns := mapping.Scope.Name() == meta.RESTScopeNameNamespace, object.GetNamespace()
			require.True(t, namespaced == (ns != ""), "%s %s has the namespace %q", object.GetKind(), object.GetName(), ns)
		}
	}
}

func writeKustomization(t *testing.T, directory, text string, components []string) {
	t.Helper()
	if len(components) > 0 {
		text += "components:\n"
	}
	for _, component := range components {
		text += "- ../components/" + component + "\n"
	}
	require.NoError(t, os.MkdirAll(directory, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(text), 0o600))
}
