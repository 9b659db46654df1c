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
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
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
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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

const (
	system     = "yardmaster-system"
	mergePatch = types.MergePatchType
)

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
	// dryRunCode is the status code of dry runs; 0 for that of the API server, whose webhooks nobody serves.
	dryRunCode *atomic.Int32
	// skew is added to the time of the API server.
	skew *atomic.Int64
}

// in returns the installation for a subtest.
func (i *installation) in(t *testing.T) *installation {
	return &installation{t, i.manifests, i.kubeconfig, i.dryRunCode, i.skew}
}

func install(t *testing.T) *installation {
	t.Helper()
	i := &installation{T: t, dryRunCode: &atomic.Int32{}, skew: &atomic.Int64{}}
	i.dryRunCode.Store(http.StatusUnprocessableEntity)
	i.kubeconfig = i.startProxy()
	for _, name := range []string{"team-a", "team-b"} {
		cluster.CreateNamespace(t, name)
	}
	// Before the webhooks, which nobody serves.
	session := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "fix"}}
	session.Spec.Prompt = "hello"
	i.must(cluster.Create(t.Context(), session))
	i.setNetworkCheck(v1alpha1.ReasonNetworkPolicyEnforced)
	queue := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "orders"}}
	i.must(cluster.Create(t.Context(), queue))
	i.setBroker(metav1.ConditionTrue, v1alpha1.ReasonConnected)
	for _, name := range []string{"team-a", "team-b"} {
		i.must(cluster.Create(t.Context(), newQuota(name)))
	}

	i.run("hack/overlay", "dist/doctor", "yardmaster:dev", "*", "team-a,team-b", "", "", "", system)
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(testenv.Root(), "dist", "doctor")) })
	for _, folder := range []string{"config/crd", "config/shared", "dist/doctor"} {
		documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(i.run("kustomize", "build", folder)), 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := documents.Decode(object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			i.manifests = append(i.manifests, object)
		}
	}
	i.restore()
	t.Cleanup(i.uninstall)
	return i
}

func (i *installation) must(err error) {
	i.Helper()
	require.NoError(i, err)
}

func (i *installation) run(name string, args ...string) string {
	i.Helper()
	command := exec.CommandContext(i.Context(), name, args...)
	command.Dir = testenv.Root()
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	if err := command.Run(); err != nil {
		i.Fatalf("%s: %v\n%s", command, err, problems.String())
	}
	return output.String()
}

// restore applies the manifests, creates the certificate authority, and waits until the operator's Pods are ready.
func (i *installation) restore() {
	i.Helper()
	for _, object := range i.manifests {
		apply := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		poll.Until(i.T, "the manifests to be applied", func() bool {
			err := cluster.Apply(i.Context(), apply, testenv.FieldOwner, client.ForceOwnership)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				i.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
			}
			return err == nil
		})
	}
	var output bytes.Buffer
	if code := plugin.Run(i.Context(), []string{"webhook-ca", "--kubeconfig", cluster.Kubeconfig}, &output, &output); code != 0 {
		i.Fatal(output.String())
	}
	lead(i)
	poll.Until(i.T, "the Pods of the operator to be ready", func() bool {
		deployment := &appsv1.Deployment{}
		err := cluster.Get(i.Context(), client.ObjectKey{Namespace: system, Name: "yardmaster"}, deployment)
		return err == nil && deployment.Status.ReadyReplicas == 2
	})
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
	session := &v1alpha1.AgenticSession{}
	i.must(cluster.Get(i.Context(), client.ObjectKey{Namespace: "team-a", Name: "fix"}, session))
	meta.SetStatusCondition(&session.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionNetworkRestricted, Status: metav1.ConditionTrue, Reason: reason})
	i.must(cluster.Status().Update(i.Context(), session))
}

func (i *installation) setBroker(status metav1.ConditionStatus, reason string) {
	i.Helper()
	queue := &v1alpha1.Queue{}
	i.must(cluster.Get(i.Context(), client.ObjectKey{Namespace: "team-b", Name: "orders"}, queue))
	meta.SetStatusCondition(&queue.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionBrokerReachable, Status: status, Reason: reason, Message: "dial tcp 10.0.0.1:4222: connection refused",
	})
	i.must(cluster.Status().Update(i.Context(), queue))
}

func (i *installation) startProxy() (kubeconfig string) {
	i.Helper()
	target, err := url.Parse(cluster.Config.Host)
	i.must(err)
	transport, err := rest.TransportFor(cluster.Config)
	i.must(err)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		ModifyResponse: func(r *http.Response) error {
			date, err := http.ParseTime(r.Header.Get("Date"))
			r.Header.Set("Date", date.Add(time.Duration(i.skew.Load())).UTC().Format(http.TimeFormat))
			return err
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Query().Get("dryRun") != "" && r.Header.Get("Impersonate-User") == "" && i.dryRunCode.Load() != 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(i.dryRunCode.Load()))
			if i.dryRunCode.Load() == http.StatusCreated {
				_, _ = io.Copy(w, r.Body)
			} else {
				_ = json.NewEncoder(w).Encode(apierrors.NewInvalid(schema.GroupKind{}, "", nil).Status())
			}
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	i.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	kubeconfig = filepath.Join(i.TempDir(), "kubeconfig")
	i.must(clientcmd.WriteToFile(*config, kubeconfig))
	return kubeconfig
}

type finding struct{ Check, Status, Reason, Fix string }

// doctor runs the command, and checks that its exit code agrees with what it found.
func (i *installation) doctor(args ...string) (findings []finding) {
	i.Helper()
	var out, errOut bytes.Buffer
	code := plugin.Run(i.Context(), append([]string{"doctor", "-o", "json", "--kubeconfig", i.kubeconfig}, args...), &out, &errOut)
	if err := json.Unmarshal(out.Bytes(), &findings); err != nil {
		i.Fatalf("exit code %d, %v: %s%s", code, err, out.String(), errOut.String())
	}
	want := 0
	if slices.ContainsFunc(findings, func(f finding) bool { return f.Status == "FAILED" }) {
		want = 1
	}
	if code != want {
		i.Errorf("exit code %d, want %d", code, want)
	}
	for _, f := range findings {
		if needsFix := f.Status == "FAILED" || f.Status == "WARNING"; needsFix != (f.Fix != "") && f.Status != "UNKNOWN" {
			i.Errorf("the fix does not suit the status: %+v", f)
		}
	}
	return findings
}

// isHealthy fails the test unless every check succeeds.
func (i *installation) isHealthy() {
	i.Helper()
	for _, f := range i.doctor() {
		if f.Status != "OK" {
			i.Errorf("%+v", f)
		}
	}
}

func (i *installation) patch(object client.Object, patchType types.PatchType, patch string) {
	i.Helper()
	i.must(cluster.Patch(i.Context(), object, client.RawPatch(patchType, []byte(patch))))
}

func (i *installation) delete(object client.Object) {
	i.Helper()
	i.must(cluster.Delete(i.Context(), object))
	poll.Until(i.T, "the object to be deleted", func() bool {
		return apierrors.IsNotFound(cluster.Get(i.Context(), client.ObjectKeyFromObject(object), object))
	})
}

// deleting and patching are damages of one object.
func deleting(object client.Object) func(*installation) {
	return func(i *installation) { i.delete(object.DeepCopyObject().(client.Object)) }
}

func patching(object client.Object, patchType types.PatchType, patch string) func(*installation) {
	return func(i *installation) { i.patch(object.DeepCopyObject().(client.Object), patchType, patch) }
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func inNamespace(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

const makeDeploy = "make install deploy IMG=yardmaster:dev NAMESPACES='team-a,team-b' OPERATOR_NAMESPACE=yardmaster-system"

// damages are what can be wrong, each with what doctor has to say about it.
var damages = map[string]struct {
	do   func(*installation)
	undo func(*installation)
	want finding // Reason is a part
}{
	"no Deployment": {
		do:   deleting(&appsv1.Deployment{ObjectMeta: inNamespace(system, "yardmaster")}),
		want: finding{"operator", "FAILED", "no Deployment of the operator exists", "make install deploy IMG=registry.example/yardmaster:"},
	},
	"no replicas": {
		do: patching(&appsv1.Deployment{ObjectMeta: inNamespace(system, "yardmaster")}, mergePatch,
			`{"spec": {"replicas": 0}}`),
		want: finding{"operator", "FAILED", "no replicas", "kubectl scale deployment yardmaster --namespace yardmaster-system --replicas=2"},
	},
	"no leader": {
		do:   func(i *installation) { i.renewLease(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") }) },
		undo: lead,
		want: finding{"leader", "FAILED", "no replica leads", "kubectl rollout restart deployment yardmaster --namespace yardmaster-system"},
	},
	"a leader of another version": {
		do: func(i *installation) {
			i.renewLease(func(l *coordinationv1.Lease) { l.Labels[version.LabelName] = "v0.0.1" })
		},
		undo: lead,
		want: finding{"leader", "WARNING", "has version v0.0.1", makeDeploy},
	},
	"a missing kind": {
		do:   deleting(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("jobreports.yardmaster.dev")}),
		want: finding{"definitions", "FAILED", "jobreports.yardmaster.dev does not exist", makeDeploy},
	},
	"a kind of another version": {
		do: patching(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("policies.yardmaster.dev")}, types.JSONPatchType,
			`[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/precedence"}]`),
		want: finding{"definitions", "FAILED", "spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.precedence differs", makeDeploy},
	},
	"a missing permission in a namespace": {
		do:   deleting(&rbacv1.RoleBinding{ObjectMeta: inNamespace("team-b", "yardmaster-queue")}),
		want: finding{"permissions", "FAILED", "in namespace team-b", makeDeploy},
	},
	"a missing permission in the cluster": {
		do:   deleting(&rbacv1.ClusterRoleBinding{ObjectMeta: named("yardmaster-identity")}),
		want: finding{"permissions", "FAILED", "the operator may not identify operators.yardmaster.dev in all namespaces", makeDeploy},
	},
	"no webhook configuration": {
		do:   deleting(&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("yardmaster")}),
		want: finding{"webhooks", "FAILED", "the ValidatingWebhookConfiguration yardmaster lacks the webhook queues.yardmaster.dev", makeDeploy},
	},
	"webhooks for other namespaces": {
		do: patching(&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named("yardmaster")}, types.JSONPatchType,
			`[{"op": "replace", "path": "/webhooks/0/matchConditions/0/expression", "value": "request.namespace == 'team-a'"}]`),
		want: finding{"webhooks", "FAILED", "agenticsessions.yardmaster.dev.matchConditions[0].expression differs", makeDeploy},
	},
	"a foreign certificate authority": {
		do: func(i *installation) {
			foreign, _, err := ca.New(time.Now())
			i.must(err)
			encoded, err := json.Marshal(foreign)
			i.must(err)
			i.patch(&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("yardmaster")}, types.JSONPatchType,
				`[{"op": "replace", "path": "/webhooks/1/clientConfig/caBundle", "value": `+string(encoded)+`}]`)
		},
		want: finding{"webhooks", "FAILED", "the API server does not accept the certificate", "kubectl yardmaster webhook-ca --namespace yardmaster-system"},
	},
	"another path": {
		do: patching(&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("yardmaster")}, types.JSONPatchType,
			`[{"op": "replace", "path": "/webhooks/1/clientConfig/service/path", "value": "/guess"}]`),
		want: finding{"webhooks", "FAILED", "the API server does not use the path", "kubectl yardmaster webhook-ca --namespace yardmaster-system"},
	},
	"no Secret": {
		do:   deleting(&corev1.Secret{ObjectMeta: inNamespace(system, "yardmaster-webhook-ca")}),
		want: finding{"webhooks", "FAILED", "yardmaster-webhook-ca with the certificate of the webhooks does not exist", "kubectl yardmaster webhook-ca"},
	},
	"an authority that expires": {
		do: func(i *installation) {
			i.delete(&corev1.Secret{ObjectMeta: inNamespace(system, "yardmaster-webhook-ca")})
			secret := &corev1.Secret{ObjectMeta: inNamespace(system, "yardmaster-webhook-ca"), Data: map[string][]byte{"path": []byte("segment")}}
			var err error
			secret.Data[ca.CertFile], secret.Data[ca.KeyFile], err = ca.New(time.Now().AddDate(-10, 0, 20))
			i.must(err)
			i.must(cluster.Create(i.Context(), secret))
			var output bytes.Buffer
			if code := plugin.Run(i.Context(), []string{"webhook-ca", "--kubeconfig", cluster.Kubeconfig}, &output, &output); code != 0 {
				i.Fatal(output.String())
			}
		},
		undo: func(i *installation) {
			i.delete(&corev1.Secret{ObjectMeta: inNamespace(system, "yardmaster-webhook-ca")})
			i.restore()
		},
		want: finding{"webhooks", "WARNING", "expires at", "kubectl yardmaster webhook-ca --namespace yardmaster-system --renew"},
	},
	"webhooks that do not answer": {
		do:   func(i *installation) { i.dryRunCode.Store(0) },
		undo: func(i *installation) { i.dryRunCode.Store(http.StatusUnprocessableEntity) },
		want: finding{"webhook calls", "FAILED", `the API server cannot call "policies.yardmaster.dev"`, "kubectl rollout restart deployment yardmaster --namespace yardmaster-system"},
	},
	"webhooks that are not called": {
		do:   func(i *installation) { i.dryRunCode.Store(http.StatusCreated) },
		undo: func(i *installation) { i.dryRunCode.Store(http.StatusUnprocessableEntity) },
		want: finding{"webhook calls", "FAILED", "the API server does not call the webhooks", makeDeploy},
	},
	"a missing policy": {
		do:   deleting(&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("yardmaster-own-objects")}),
		want: finding{"admission policies", "FAILED", "ValidatingAdmissionPolicy yardmaster-own-objects does not exist", makeDeploy},
	},
	"a changed policy": {
		do: patching(&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("yardmaster-kube-system")}, types.JSONPatchType,
			`[{"op": "replace", "path": "/spec/validations/0/expression", "value": "true"}]`),
		want: finding{"admission policies", "FAILED", "spec.validations[0].expression differs", makeDeploy},
	},
	"a policy that denies nothing": {
		do: patching(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named("yardmaster-session-users")}, mergePatch,
			`{"spec": {"validationActions": ["Audit"]}}`),
		want: finding{"admission policies", "FAILED", "ValidatingAdmissionPolicyBinding yardmaster-session-users", makeDeploy},
	},
	"network policies that are not enforced": {
		do:   func(i *installation) { i.setNetworkCheck(v1alpha1.ReasonNetworkNotEnforced) },
		undo: func(i *installation) { i.setNetworkCheck(v1alpha1.ReasonNetworkPolicyEnforced) },
		want: finding{"network policies", "FAILED", "session team-a/fix", "kubectl get daemonsets --namespace kube-system"},
	},
	"no check of network policies yet": {
		do:   func(i *installation) { i.setNetworkCheck(v1alpha1.ReasonNetworkCheckPending) },
		undo: func(i *installation) { i.setNetworkCheck(v1alpha1.ReasonNetworkPolicyEnforced) },
		want: finding{"network policies", "UNKNOWN", "no session has checked", "kubectl yardmaster session create network-check"},
	},
	"a broker that does not answer": {
		do:   func(i *installation) { i.setBroker(metav1.ConditionFalse, v1alpha1.ReasonConnectionFailed) },
		undo: func(i *installation) { i.setBroker(metav1.ConditionTrue, v1alpha1.ReasonConnected) },
		want: finding{"brokers", "FAILED", "Queue team-b/orders: ConnectionFailed: dial tcp", "kubectl get secret yardmaster-broker --namespace team-b"},
	},
	"no quota": {
		do:   func(i *installation) { i.delete(newQuota("team-b")) },
		undo: func(i *installation) { i.must(cluster.Create(i.Context(), newQuota("team-b"))) },
		want: finding{"quotas", "WARNING", "sequentialjobs, schedules, queues, and 16 more in namespace team-b", "kubectl create quota yardmaster --namespace team-b --hard=count/"},
	},
	"a clock of this machine that is wrong": {
		do:   func(i *installation) { i.skew.Store(int64(-10 * time.Minute)) },
		undo: func(i *installation) { i.skew.Store(0) },
		want: finding{"clocks", "WARNING", "ahead of that of the API server", "timedatectl set-ntp true"},
	},
	"a clock of the operator that is wrong": {
		do: func(i *installation) {
			i.renewLease(func(l *coordinationv1.Lease) {
				l.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-10 * time.Minute)))
			})
		},
		undo: lead,
		want: finding{"clocks", "FAILED", "behind that of the API server: Schedules start at wrong times", "kubectl debug node/$(kubectl get pod yardmaster-5c9f7d-x2k4p"},
	},
}

func TestDoctor(t *testing.T) {
	i := install(t)
	i.isHealthy()
	t.Run("names what is wrong and how to repair it", func(t *testing.T) { i.in(t).namesDamages() })
	t.Run("names the permissions that its user lacks", func(t *testing.T) { i.in(t).namesMissingPermissions() })
	t.Run("prints commands that repair the installation", func(t *testing.T) { i.in(t).isRepaired() })
}

func (i *installation) namesDamages() {
	for name, damage := range damages {
		i.Run(name, func(t *testing.T) {
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
	for _, name := range []string{
		"no replicas", "a missing kind", "a missing permission in a namespace", "no webhook configuration", "a missing policy", "no quota",
		"a clock of the operator that is wrong",
	} {
		damages[name].do(i)
	}
	lead(i)
	i.runFixes()
	damages["a foreign certificate authority"].do(i)
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
		if output, err := command.CombinedOutput(); err != nil {
			i.Errorf("%s: %v\n%s", f.Fix, err, output)
		}
	}
	if len(ran) == 0 {
		i.Error("nothing is wrong")
	}
}
