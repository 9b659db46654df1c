// Package doctor tests `kubectl yardmaster doctor` against an installation whose parts are broken one after another. It installs
// the operator for two namespaces with the manifests of `make deploy`; simulated nodes run its Pods.
package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator/ca"
	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/internal/version"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const system = "yardmaster-system"

var cluster *testenv.Cluster

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testenv.Main(m, "make test-integration", testenv.WithCRDs(&cluster))
}

// installation is an installation with which nothing is wrong, and a proxy between the plugin and the API server: no Pod can answer
// the webhooks, so the proxy refuses dry runs as they do, and it can change the time of the API server.
type installation struct {
	*testing.T
	manifests  []*unstructured.Unstructured
	kubeconfig string
	dryRunCode *atomic.Int32 // the status code of dry runs; 0 for that of the API server, whose webhooks nobody serves
	skew       *atomic.Int64 // added to the time of the API server
}

func (i *installation) in(t *testing.T) *installation {
	return &installation{t, i.manifests, i.kubeconfig, i.dryRunCode, i.skew}
}

func install(t *testing.T) *installation {
	t.Helper()
	i := &installation{T: t, dryRunCode: &atomic.Int32{}, skew: &atomic.Int64{}}
	i.dryRunCode.Store(http.StatusUnprocessableEntity)
	_, i.kubeconfig = cluster.StartProxy(t, "", i.refuseDryRuns, i.changeDate)
	cluster.CreateNamespace(t, "team-a")
	cluster.CreateNamespace(t, "team-b")
	// Before the webhooks, which nobody serves.
	session := named(&v1alpha1.AgenticSession{}, "team-a", "fix")
	session.Spec.Prompt = "hello"
	i.must(cluster.Create(t.Context(), session))
	i.setNetworkCheck(v1alpha1.ReasonNetworkPolicyEnforced)
	i.must(cluster.Create(t.Context(), named(&v1alpha1.Queue{}, "team-b", "orders")))
	i.setBroker(metav1.ConditionTrue, v1alpha1.ReasonConnected)
	i.must(errors.Join(cluster.Create(t.Context(), newQuota("team-a")), cluster.Create(t.Context(), newQuota("team-b"))))

	testenv.Run(t, "hack/overlay", "dist/doctor", "yardmaster:dev", "*", "team-a,team-b", "", "", "", system)
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(testenv.Root(), "dist", "doctor")) })
	for _, folder := range []string{"config/crd", "config/shared", "dist/doctor"} {
		i.manifests = append(i.manifests, testenv.Decode(t, testenv.Run(t, "kustomize", "build", folder))...)
	}
	i.restore()
	t.Cleanup(i.uninstall)
	return i
}

func (i *installation) must(err error) {
	i.Helper()
	require.NoError(i, err)
}

// restore applies the manifests, creates the certificate authority, and waits until the operator's Pods are ready.
func (i *installation) restore() {
	i.Helper()
	for _, object := range i.manifests {
		apply := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		poll.Until(i.T, "the manifests to be applied", func() bool {
			err := cluster.Apply(i.Context(), apply, testenv.FieldOwner, client.ForceOwnership)
			require.True(i, err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err), "%s %s: %v", object.GetKind(), object.GetName(), err)
			return err == nil
		})
	}
	i.installAuthority()
	lead(i)
	poll.Until(i.T, "the Pods of the operator to be ready", func() bool {
		deployment := &appsv1.Deployment{}
		err := cluster.Get(i.Context(), client.ObjectKey{Namespace: system, Name: "yardmaster"}, deployment)
		return err == nil && deployment.Status.ReadyReplicas == 2
	})
}

// installAuthority makes the API server trust the certificate authority of the webhooks, which it creates unless it exists.
func (i *installation) installAuthority() {
	i.Helper()
	var output bytes.Buffer
	if code := plugin.Run(i.Context(), []string{"webhook-ca", "--kubeconfig", cluster.Kubeconfig}, &output, &output); code != 0 {
		i.Fatal(output.String())
	}
}

// uninstall deletes what other tests of the same cluster would notice.
func (i *installation) uninstall() {
	ctx := context.WithoutCancel(i.Context())
	for _, object := range i.manifests {
		if object.GetKind() == "CustomResourceDefinition" {
			continue
		}
		if err := client.IgnoreNotFound(cluster.Delete(ctx, object)); err != nil {
			i.Error(err)
		}
	}
}

// renewLease writes the Lease as the operator does.
func (i *installation) renewLease(change func(*coordinationv1.Lease)) {
	i.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "yardmaster.yardmaster.dev"}}
	require.NoError(i, client.IgnoreNotFound(cluster.Get(i.Context(), client.ObjectKeyFromObject(lease), lease)))
	lease.Labels = map[string]string{version.LabelName: version.Label()}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("yardmaster-5c9f7d-x2k4p_1"), new(int32(3600))
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
	change(lease)
	if lease.ResourceVersion == "" {
		i.must(cluster.Create(i.Context(), lease))
		return
	}
	i.must(cluster.Update(i.Context(), lease))
}

// lead renews the Lease as a leader of this version does.
func lead(i *installation) { i.renewLease(func(*coordinationv1.Lease) {}) }

func newQuota(namespace string) *corev1.ResourceQuota {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "yardmaster"}}
	quota.Spec.Hard = corev1.ResourceList{}
	for limit := range strings.SplitSeq(plugin.RecommendedQuota, ",") {
		kind, count, _ := strings.Cut(limit, "=")
		quota.Spec.Hard[corev1.ResourceName(kind)] = resource.MustParse(count)
	}
	return quota
}

func (i *installation) setNetworkCheck(reason string) {
	i.Helper()
	session := named(&v1alpha1.AgenticSession{}, "team-a", "fix")
	i.setCondition(session, &session.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionNetworkRestricted, Status: metav1.ConditionTrue, Reason: reason,
	})
}

func (i *installation) setBroker(status metav1.ConditionStatus, reason string) {
	i.Helper()
	queue := named(&v1alpha1.Queue{}, "team-b", "orders")
	i.setCondition(queue, &queue.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionBrokerReachable, Status: status, Reason: reason, Message: "dial tcp 10.0.0.1:4222: connection refused",
	})
}

func (i *installation) setCondition(object client.Object, conditions *[]metav1.Condition, condition metav1.Condition) {
	i.Helper()
	i.must(cluster.Get(i.Context(), client.ObjectKeyFromObject(object), object))
	meta.SetStatusCondition(conditions, condition)
	i.must(cluster.Status().Update(i.Context(), object))
}

// refuseDryRuns answers dry runs of users as the webhooks would.
func (i *installation) refuseDryRuns(w http.ResponseWriter, r *http.Request, api http.Handler) {
	code := int(i.dryRunCode.Load())
	if r.Method != http.MethodPost || r.URL.Query().Get("dryRun") == "" || r.Header.Get("Impersonate-User") != "" || code == 0 {
		api.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if code == http.StatusCreated {
		_, _ = io.Copy(w, r.Body)
		return
	}
	if err := json.NewEncoder(w).Encode(apierrors.NewInvalid(schema.GroupKind{}, "", nil).Status()); err != nil {
		panic(err)
	}
}

func (i *installation) changeDate(r *http.Response) error {
	date, err := http.ParseTime(r.Header.Get("Date"))
	r.Header.Set("Date", date.Add(time.Duration(i.skew.Load())).UTC().Format(http.TimeFormat))
	return err
}

type finding struct{ Check, Status, Reason, Fix string }

// doctor runs the command, and checks that its exit code agrees with what it found.
func (i *installation) doctor(args ...string) (findings []finding) {
	i.Helper()
	var out, errOut bytes.Buffer
	code := plugin.Run(i.Context(), append([]string{"doctor", "-o", "json", "--kubeconfig", i.kubeconfig}, args...), &out, &errOut)
	err := json.Unmarshal(out.Bytes(), &findings)
	require.True(i, err == nil, "exit code %d, %v: %s%s", code, err, out.String(), errOut.String())
	want := 0
	if slices.ContainsFunc(findings, func(f finding) bool { return f.Status == "FAILED" }) {
		want = 1
	}
	require.True(i, code == want, "exit code %d, want %d", code, want)
	for _, f := range findings {
		needsFix := f.Status == "FAILED" || f.Status == "WARNING"
		require.True(i, needsFix == (f.Fix != "") || f.Status == "UNKNOWN", "the fix does not suit the status: %+v", f)
	}
	return findings
}

func (i *installation) isHealthy() {
	i.Helper()
	for _, f := range i.doctor() {
		if f.Status != "OK" {
			i.Errorf("%+v", f)
		}
	}
}

// patch applies a merge patch, or a JSON patch, which is a list.
func (i *installation) patch(object client.Object, patch string) {
	i.Helper()
	patchType := types.MergePatchType
	if strings.HasPrefix(patch, "[") {
		patchType = types.JSONPatchType
	}
	i.must(cluster.Patch(i.Context(), object, client.RawPatch(patchType, []byte(patch))))
}

func (i *installation) delete(object client.Object) {
	i.Helper()
	i.must(cluster.Delete(i.Context(), object))
	poll.Until(i.T, "the object to be deleted", func() bool {
		return apierrors.IsNotFound(cluster.Get(i.Context(), client.ObjectKeyFromObject(object), object))
	})
}

// deleting and patching are damages of one object, and leading one of the Lease.
func deleting(object client.Object) func(*installation) {
	return func(i *installation) { i.delete(object.DeepCopyObject().(client.Object)) }
}

func patching(object client.Object, patch string) func(*installation) {
	return func(i *installation) { i.patch(object.DeepCopyObject().(client.Object), patch) }
}

func leading(change func(*coordinationv1.Lease)) func(*installation) {
	return func(i *installation) { i.renewLease(change) }
}

func named[T client.Object](object T, namespace, name string) T {
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// The objects that are damaged.
var (
	deployment = named(&appsv1.Deployment{}, system, "yardmaster")
	authority  = named(&corev1.Secret{}, system, "yardmaster-webhook-ca")
	validating = named(&admissionregistrationv1.ValidatingWebhookConfiguration{}, "", "yardmaster")
	mutating   = named(&admissionregistrationv1.MutatingWebhookConfiguration{}, "", "yardmaster")
	jobReports = named(&apiextensionsv1.CustomResourceDefinition{}, "", "jobreports.yardmaster.dev")
	policies   = named(&apiextensionsv1.CustomResourceDefinition{}, "", "policies.yardmaster.dev")
	ofQueues   = named(&rbacv1.RoleBinding{}, "team-b", "yardmaster-queue")
	identity   = named(&rbacv1.ClusterRoleBinding{}, "", "yardmaster-identity")
	ownObjects = named(&admissionregistrationv1.ValidatingAdmissionPolicy{}, "", "yardmaster-own-objects")
	kubeSystem = named(&admissionregistrationv1.ValidatingAdmissionPolicy{}, "", "yardmaster-kube-system")
	ofUsers    = named(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, "", "yardmaster-session-users")
)

// Parts of the commands that repair the installation.
const (
	makeDeploy = "make install deploy IMG=yardmaster:dev NAMESPACES='team-a,team-b' OPERATOR_NAMESPACE=yardmaster-system"
	restart    = "kubectl rollout restart deployment yardmaster --namespace yardmaster-system"
	webhookCA  = "kubectl yardmaster webhook-ca --namespace yardmaster-system"
)

func failed(check, reason, fix string) finding { return finding{check, "FAILED", reason, fix} }
func warned(check, reason, fix string) finding { return finding{check, "WARNING", reason, fix} }
func network(reason string) func(*installation) {
	return func(i *installation) { i.setNetworkCheck(reason) }
}

func broker(status metav1.ConditionStatus, reason string) func(*installation) {
	return func(i *installation) { i.setBroker(status, reason) }
}

func dryRuns(code int32) func(*installation) {
	return func(i *installation) { i.dryRunCode.Store(code) }
}

func skewed(by time.Duration) func(*installation) {
	return func(i *installation) { i.skew.Store(int64(by)) }
}

// damages are what can be wrong, each with what doctor has to say about it.
var damages = []struct {
	title    string
	do, undo func(*installation) // undo applies all manifests if it is nil
	want     finding             // Reason and Fix are parts
}{
	{"no Deployment", deleting(deployment), nil, failed("operator", "no Deployment of the operator exists", "make install deploy IMG=")},
	{"no replicas", patching(deployment, `{"spec": {"replicas": 0}}`), nil, failed("operator", "no replicas", "kubectl scale deployment yardmaster")},
	{"no leader", leading(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") }), lead, failed("leader", "no replica leads", restart)},
	{
		"a leader of another version", leading(func(l *coordinationv1.Lease) { l.Labels[version.LabelName] = "v0.0.1" }), lead,
		warned("leader", "has version v0.0.1", makeDeploy),
	},
	{"a missing kind", deleting(jobReports), nil, failed("definitions", "jobreports.yardmaster.dev does not exist", makeDeploy)},
	{
		"a kind of another version",
		patching(policies, `[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/precedence"}]`), nil,
		failed("definitions", "spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.precedence differs", makeDeploy),
	},
	{"a missing permission in a namespace", deleting(ofQueues), nil, failed("permissions", "in namespace team-b", makeDeploy)},
	{"a missing permission in the cluster", deleting(identity), nil, failed("permissions", "the operator may not identify", makeDeploy)},
	{"no webhook configuration", deleting(validating), nil, failed("webhooks", "lacks the webhook queues.yardmaster.dev", makeDeploy)},
	{
		"webhooks for other namespaces",
		patching(mutating, `[{"op": "replace", "path": "/webhooks/0/matchConditions/0/expression", "value": "request.namespace == 'team-a'"}]`), nil,
		failed("webhooks", "agenticsessions.yardmaster.dev.matchConditions[0].expression differs", makeDeploy),
	},
	{"a foreign certificate authority", trustForeignAuthority, nil, failed("webhooks", "the API server does not accept the certificate", webhookCA)},
	{
		"another path", patching(validating, `[{"op": "replace", "path": "/webhooks/1/clientConfig/service/path", "value": "/guess"}]`), nil,
		failed("webhooks", "the API server does not use the path", webhookCA),
	},
	{"no Secret", deleting(authority), nil, failed("webhooks", "yardmaster-webhook-ca with the certificate", "kubectl yardmaster webhook-ca")},
	{
		"an authority that expires", useExpiringAuthority, func(i *installation) { i.delete(authority.DeepCopy()); i.restore() },
		warned("webhooks", "expires at", webhookCA+" --renew"),
	},
	{"webhooks that do not answer", dryRuns(0), dryRuns(422), failed("webhook calls", `cannot call "policies.yardmaster.dev"`, restart)},
	{"webhooks that are not called", dryRuns(201), dryRuns(422), failed("webhook calls", "does not call the webhooks", makeDeploy)},
	{"a missing policy", deleting(ownObjects), nil, failed("admission policies", "yardmaster-own-objects does not exist", makeDeploy)},
	{
		"a changed policy", patching(kubeSystem, `[{"op": "replace", "path": "/spec/validations/0/expression", "value": "true"}]`), nil,
		failed("admission policies", "spec.validations[0].expression differs", makeDeploy),
	},
	{
		"a policy that denies nothing", patching(ofUsers, `{"spec": {"validationActions": ["Audit"]}}`), nil,
		failed("admission policies", "ValidatingAdmissionPolicyBinding yardmaster-session-users", makeDeploy),
	},
	{
		"network policies that are not enforced", network(v1alpha1.ReasonNetworkNotEnforced), network(v1alpha1.ReasonNetworkPolicyEnforced),
		failed("network policies", "session team-a/fix", "kubectl get daemonsets --namespace kube-system"),
	},
	{
		"no check of network policies yet", network(v1alpha1.ReasonNetworkCheckPending), network(v1alpha1.ReasonNetworkPolicyEnforced),
		finding{"network policies", "UNKNOWN", "no session has checked", "kubectl yardmaster session create network-check"},
	},
	{
		"a broker that does not answer",
		broker(metav1.ConditionFalse, v1alpha1.ReasonConnectionFailed), broker(metav1.ConditionTrue, v1alpha1.ReasonConnected),
		failed("brokers", "Queue team-b/orders: ConnectionFailed: dial tcp", "kubectl explain queue.spec.broker && kubectl edit queue orders --namespace team-b"),
	},
	{
		"no quota", deleting(newQuota("team-b")), func(i *installation) { i.must(cluster.Create(i.Context(), newQuota("team-b"))) },
		warned("quotas", "sequentialjobs, schedules, queues, and 16 more in namespace team-b", "kubectl create quota yardmaster --namespace team-b"),
	},
	{
		"a clock of this machine that is wrong", skewed(-10 * time.Minute), skewed(0),
		warned("clocks", "ahead of that of the API server", "timedatectl set-ntp true"),
	},
	{
		"a clock of the operator that is wrong",
		leading(func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-10 * time.Minute)))
		}), lead,
		failed("clocks", "behind that of the API server: Schedules start at wrong times", "kubectl debug node/$(kubectl get pod yardmaster-"),
	},
}

func trustForeignAuthority(i *installation) {
	foreign, _, err := ca.New(time.Now())
	i.must(err)
	encoded, err := json.Marshal(foreign)
	i.must(err)
	i.patch(validating.DeepCopy(), `[{"op": "replace", "path": "/webhooks/1/clientConfig/caBundle", "value": `+string(encoded)+`}]`)
}

func useExpiringAuthority(i *installation) {
	i.delete(authority.DeepCopy())
	secret := authority.DeepCopy()
	secret.Data = map[string][]byte{"path": []byte("segment")}
	var err error
	secret.Data[ca.CertFile], secret.Data[ca.KeyFile], err = ca.New(time.Now().AddDate(-10, 0, 20))
	i.must(err)
	i.must(cluster.Create(i.Context(), secret))
	i.installAuthority()
}

func (i *installation) damage(title string) {
	for _, d := range damages {
		if d.title == title {
			d.do(i)
			return
		}
	}
	i.Fatalf("there is no damage %q", title)
}

func TestDoctor(t *testing.T) {
	i := install(t)
	i.isHealthy()
	t.Run("names what is wrong and how to repair it", func(t *testing.T) { i.in(t).namesDamages() })
	t.Run("names the permissions that its user lacks", func(t *testing.T) { i.in(t).namesMissingPermissions() })
	t.Run("prints commands that repair the installation", func(t *testing.T) { i.in(t).isRepaired() })
}

func (i *installation) namesDamages() {
	for _, damage := range damages {
		i.Run(damage.title, func(t *testing.T) {
			i := i.in(t)
			damage.do(i)
			if damage.undo == nil {
				damage.undo = (*installation).restore // which applies all manifests
			}
			defer damage.undo(i)
			findings := i.doctor()
			if !slices.ContainsFunc(findings, func(f finding) bool {
				return f.Check == damage.want.Check && f.Status == damage.want.Status && strings.Contains(f.Reason, damage.want.Reason) && strings.HasPrefix(f.Fix, damage.want.Fix)
			}) {
				t.Errorf("want %+v, found %+v", damage.want, findings)
			}
		})
	}
	i.isHealthy()
}

// The user may see nothing but that the API server is there.
func (i *installation) namesMissingPermissions() {
	for _, f := range i.doctor("--as=jane") {
		isOfThisMachine := f.Check == "clocks" && f.Status == "OK"
		if !isOfThisMachine && (f.Status != "UNKNOWN" || !strings.Contains(f.Reason, "permission to ") && !strings.Contains(f.Reason, "Deployment could not be read")) {
			i.Errorf("%+v", f)
		}
	}
}

// Several things are wrong at once.
func (i *installation) isRepaired() {
	for _, title := range []string{
		"no replicas", "a missing kind", "a missing permission in a namespace", "no webhook configuration", "a missing policy", "no quota",
		"a clock of the operator that is wrong",
	} {
		i.damage(title)
	}
	lead(i)
	i.runFixes()
	i.damage("a foreign certificate authority")
	i.runFixes()
	poll.Until(i.T, "the replicas to be ready", func() bool {
		return !slices.ContainsFunc(i.doctor(), func(f finding) bool { return f.Check == "operator" && f.Status != "OK" })
	})
	i.isHealthy()
}

// runFixes runs the commands that doctor prints, each once.
func (i *installation) runFixes() {
	i.Helper()
	programs := i.TempDir()
	kubectl := "#!/bin/sh\nif [ \"$1\" = yardmaster ]; then shift; exec kubectl-yardmaster \"$@\"; fi\nexec localcluster kubectl --name \"$CLUSTER_NAME\" -- \"$@\"\n"
	require.NoError(i, os.WriteFile(filepath.Join(programs, "kubectl"), []byte(kubectl), 0o700))
	path := "PATH=" + strings.Join([]string{programs, filepath.Join(testenv.Root(), "bin"), os.Getenv("PATH")}, ":")
	ran := map[string]bool{}
	for _, f := range i.doctor() {
		if f.Fix == "" || ran[f.Fix] {
			continue
		}
		ran[f.Fix] = true
		command := exec.CommandContext(i.Context(), "bash", "-c", f.Fix)
		command.Dir = testenv.Root()
		command.Env = append(os.Environ(), "GOFLAGS=", "MAKEFLAGS=", path)
		output, err := command.CombinedOutput()
		require.True(i, err == nil, "%s: %v\n%s", f.Fix, err, output)
	}
	require.True(i, len(ran) != 0, "nothing is wrong")
}
