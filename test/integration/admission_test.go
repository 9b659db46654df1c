package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// restrictedOperator is the ServiceAccount of an operator for all namespaces, with the admission
// policies of the installation.
type restrictedOperator struct {
	*deployment
	t      *testing.T
	client client.Client
	// owner of the operator's objects in the namespace watched. The WorkerPool controller of these
	// tests does not reconcile it.
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

// newClientOf returns a client with the permissions of a ServiceAccount.
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

// waitForAdmissionPolicies returns once the policies exist, and that about the users of sessions, which applies to everybody, has an
// effect.
func waitForAdmissionPolicies(t *testing.T) {
	t.Helper()
	admissionPolicies.Do(func() { installAdmissionPolicies(t) })
	require.True(t, admissionPolicies.succeeded, "the admission policies were not installed: see the failure of another test")
}

func removeAdmissionPolicies(ctx context.Context) {
	for _, object := range admissionPolicies.installed {
		if err := cluster.Delete(ctx, object); err != nil {
			fmt.Fprintln(os.Stderr, "removing an admission policy:", err)
		}
	}
}

// restrict waits until the admission policies apply to this ServiceAccount.
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
	o.t.Cleanup(func() {
		require.NoError(o.t, client.IgnoreNotFound(cluster.Delete(context.Background(), object)))
	})
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
		if err := o.client.Patch(t.Context(), change.object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change.patch)), client.DryRunAll); err != nil {
			t.Errorf("patching %s with %s: %v", change.object.GetName(), change.patch, err)
		}
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
				if isDenied := isDeniedByPolicy(err); isDenied != row.denied || !isDenied && err != nil {
					t.Errorf("%T: %v, want a denial: %t", object, err, row.denied)
				}
			}
		})
	}
}
