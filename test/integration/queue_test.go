package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/gateway"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	workerpoolcontroller "github.com/yardmaster/yardmaster/internal/kinds/workerpool/controller"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// queueEnv is a namespace with a NATS server whose URL is in the Secret "broker".
type queueEnv struct {
	t  *testing.T
	ns string
	*natstest.Server
}

func newQueueEnv(t *testing.T) *queueEnv {
	t.Helper()
	e := &queueEnv{t: t, ns: namespace(t), Server: natstest.Start(t)}
	e.createSecret("broker", "url", "nats://"+e.Address())
	t.Cleanup(e.abandonQueues)
	return e
}

// abandonQueues keeps Queues from blocking the deletion of the namespace after its NATS server stops.
func (e *queueEnv) abandonQueues() {
	var list v1alpha1.QueueList
	require.NoError(e.t, cluster.List(context.Background(), &list, client.InNamespace(e.ns)))
	for i := range list.Items {
		patch := client.RawPatch(mergePatch, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, queue.AnnotationAbandon))
		require.NoError(e.t, client.IgnoreNotFound(cluster.Patch(context.Background(), &list.Items[i], patch)))
	}
}

func (e *queueEnv) createSecret(name string, data ...string) *corev1.Secret {
	e.t.Helper()
	s := testbuilder.BrokerSecret(e.ns, name, data...)
	mustCreate(e.t, s)
	return s
}

const natsBrokerField = "broker: {engine: NATS, urlSecretRef: {name: broker}}"

// createQueue creates a Queue on the NATS server, with more fields in its spec.
func (e *queueEnv) createQueue(name, spec string) {
	e.t.Helper()
	e.createQueueOn(natsBrokerField, name, spec)
}

func (e *queueEnv) createQueueOn(broker, name, spec string) {
	e.t.Helper()
	if spec != "" {
		spec = ", " + spec
	}
	mustCreate(e.t, newManifest(e.t, "Queue", e.ns, name, "{"+broker+spec+"}"))
}

func (e *queueEnv) getQueue(name string) *v1alpha1.Queue {
	return mustGet(e.t, client.ObjectKey{Namespace: e.ns, Name: name}, &v1alpha1.Queue{})
}

func (e *queueEnv) patchQueue(name, patch string) {
	e.t.Helper()
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}}
	mustPatch(e.t, q, client.RawPatch(mergePatch, []byte(patch)))
}

func (e *queueEnv) deleteQueue(name string) {
	e.t.Helper()
	mustDelete(e.t, e.getQueue(name))
}

func (e *queueEnv) waitForCondition(name, condition string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	e.t.Helper()
	var is *metav1.Condition
	if err := poll.UntilNil(e.t.Context(), func() error {
		q := e.getQueue(name)
		is = meta.FindStatusCondition(q.Status.Conditions, condition)
		if is == nil || is.Status != status || is.Reason != reason || is.ObservedGeneration != q.Generation {
			return fmt.Errorf("the condition is %+v", is)
		}
		return nil
	}); err != nil {
		e.t.Fatalf("waiting for %s of %s to be %s, %s: %v", condition, name, status, reason, err)
	}
	return is
}

func (e *queueEnv) waitUntilReady(name string) {
	e.t.Helper()
	e.waitForCondition(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func (e *queueEnv) waitUntilDeleted(name string) {
	e.t.Helper()
	poll.Until(e.t, "the deletion of "+name, func() bool {
		return apierrors.IsNotFound(cluster.Get(e.t.Context(), client.ObjectKey{Namespace: e.ns, Name: name}, &v1alpha1.Queue{}))
	})
}

// brokerName returns the name of a Queue on the broker: that in its status, or the default for one that does not exist any more.
func (e *queueEnv) brokerName(queue string) string {
	e.t.Helper()
	q := &v1alpha1.Queue{}
	require.NoError(e.t, client.IgnoreNotFound(cluster.Get(e.t.Context(), client.ObjectKey{Namespace: e.ns, Name: queue}, q)))
	if q.Status.Name != "" {
		return q.Status.Name
	}
	system := mustGet(e.t, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{})
	return broker.ScopedQueueName(e.ns, queue, broker.ClusterID(string(system.UID)))
}

func (e *queueEnv) streamName(queue string) string { return "yardmaster_" + e.brokerName(queue) }

func (e *queueEnv) streamNames() []string {
	e.t.Helper()
	var all []string
	names := e.JetStream().StreamNames(e.t.Context())
	for name := range names.Name() {
		all = append(all, name)
	}
	require.NoError(e.t, names.Err())
	slices.Sort(all)
	return all
}

func findEvent(t *testing.T, namespace, name, reason string) *eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(namespace)))
	i := slices.IndexFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == name && e.Reason == reason })
	if i < 0 {
		return nil
	}
	return &list.Items[i]
}

// examples returns the paths of the examples of these patterns, each of which has some.
func examples(t *testing.T, patterns ...string) (paths []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(repositoryRoot, "examples", pattern))
		require.True(t, err == nil && len(files) > 0, "%d examples %s: %v", len(files), pattern, err)
		paths = append(paths, files...)
	}
	return paths
}

func (e *queueEnv) waitForConflict(name string) string {
	e.t.Helper()
	return e.waitForCondition(name, v1alpha1.ConditionConfigSynced, metav1.ConditionFalse, v1alpha1.ReasonOwnedByOtherQueue).Message
}

// visibleText is everything that someone with read access to the namespace can see about its Queues.
func (e *queueEnv) visibleText() string {
	e.t.Helper()
	var queues v1alpha1.QueueList
	var events eventsv1.EventList
	for _, list := range []client.ObjectList{&queues, &events} {
		require.NoError(e.t, cluster.List(e.t.Context(), list, client.InNamespace(e.ns)))
	}
	return fmt.Sprintf("%+v %+v", queues.Items, events.Items)
}

func TestAQueueCannotTakeOverTheQueueOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	victim := newQueueEnv(t)
	attacker := &queueEnv{t: t, ns: namespace(t), Server: victim.Server}
	attacker.createSecret("broker", "url", "nats://"+victim.Address())
	t.Cleanup(attacker.abandonQueues)
	// A Queue that is older than the victim's, on another broker until the victim has a queue.
	attacker.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: missing}}", "older", "name: shared, deletionPolicy: Purge")
	attacker.waitForCondition("older", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	victim.createQueue("mail", "name: shared")
	victim.waitUntilReady("mail")
	for range 2 {
		_, err := victim.JetStream().Publish(t.Context(), "yardmaster."+victim.brokerName("mail")+".ready.default", []byte("work"))
		require.NoError(t, err)
	}
	owner := victim.getQueue("mail")

	attacker.patchQueue("older", `{"spec":{"broker":{"urlSecretRef":{"name":"broker"}}}}`)
	attacker.waitForConflict("older")
	attacker.createQueue("mail", "name: shared, deletionPolicy: Purge, deadLetter: {onDelete: Purge}")
	attacker.waitForConflict("mail")
	for _, name := range []string{"older", "mail"} {
		attacker.patchQueue(name, fmt.Sprintf(`{"metadata":{"annotations":{"yardmaster.dev/supersedes":%q}}}`, owner.UID))
		attacker.waitForConflict(name)
		poll.Until(t, "an event of "+name, func() bool { return findEvent(t, attacker.ns, name, v1alpha1.ReasonOwnedByOtherQueue) != nil })
	}
	for _, name := range []string{"older", "mail"} {
		attacker.patchQueue(name, `{"metadata":{"annotations":{"yardmaster.dev/supersedes":null}}}`)
	}
	if text := attacker.visibleText(); strings.Contains(text, victim.ns) || strings.Contains(text, string(owner.UID)) {
		t.Errorf("the attacker sees the victim's namespace or UID: %s", text)
	}
	for _, name := range []string{"older", "mail"} {
		attacker.deleteQueue(name)
		attacker.waitUntilDeleted(name)
	}
	victim.waitUntilReady("mail")
	poll.Until(t, "two messages in the status", func() bool {
		ready := victim.getQueue("mail").Status.Backlog
		return ready != nil && *ready == 2
	})
}

// Versions before v0.2 named a queue on the broker as its Queue.
func TestAQueueKeepsTheNameThatItsStatusRecords(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: missing}}", "mail", "")
	e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	q, named := e.getQueue("mail"), client.RawPatch(mergePatch, []byte(`{"spec":{"name":"mail"}}`))
	err := cluster.Patch(t.Context(), q.DeepCopy(), named)
	require.True(t, apierrors.IsInvalid(err), "a name that is not in the status: %v", err)
	require.NoError(t, cluster.Status().Patch(t.Context(), q, client.RawPatch(mergePatch, []byte(`{"status":{"name":"mail"}}`))))
	e.patchQueue("mail", `{"spec":{"broker":{"urlSecretRef":{"name":"broker"}}}}`)
	e.waitUntilReady("mail")
	if !slices.Contains(e.streamNames(), "yardmaster_mail") || e.getQueue("mail").Status.Name != "mail" {
		t.Errorf("the server has the streams %q", e.streamNames())
	}
	e.patchQueue("mail", `{"spec":{"name":"mail"}}`) // what the status records can be made explicit
}

// A Queue that was deleted before it owned anything must not touch the queues of other programs.
func TestADeletedQueueLeavesTheQueueOfAnotherProgramAlone(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	s := redistest.Start(t)
	e.createSecret("redis", "url", s.URL())
	s.RunCLI("SADD", "asynq:queues", "billing")
	s.RunCLI("ZADD", "asynq:{billing}:archived", "1", "task")
	e.createQueueOn("broker: {engine: Asynq, urlSecretRef: {name: missing}}", "mail", "name: billing, deletionPolicy: Purge, deadLetter: {onDelete: Purge}")
	e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	e.patchQueue("mail", `{"metadata":{"finalizers":["yardmaster.dev/queue"]}}`)
	e.deleteQueue("mail")
	e.patchQueue("mail", `{"spec":{"broker":{"urlSecretRef":{"name":"redis"}}}}`)
	e.waitUntilDeleted("mail")
	require.Equal(t, "1", s.RunCLI("ZCARD", "asynq:{billing}:archived"))
}

// Those who may create a Queue may not be allowed to read Secrets.
func TestOnlySecretsWithTheLabelAreUsed(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	private := e.createSecret("private", "url", "nats://"+e.Address(), "password", "hunter2")
	setLabel := func(value string) {
		t.Helper()
		patch := client.RawPatch(mergePatch, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelBroker, value))
		mustPatch(t, private, patch)
	}
	setLabel("null")
	broker := "broker: {engine: NATS, urlSecretRef: {name: private}}"
	e.createQueueOn(broker, "mail", "")
	e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: private, key: password}}", "curious", "")
	createPolicy(t, e.ns, "{selector: {matchLabels: {team: none}}, defaults: {"+broker+"}}")
	want := fmt.Sprintf("kubectl label secret private -n %s yardmaster.dev/broker=true", e.ns)
	for kind, is := range map[string]*metav1.Condition{
		"Queue":         e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretInvalid),
		"another Queue": e.waitForCondition("curious", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretInvalid),
		"Policy":        waitForPolicy(t, e.ns, metav1.ConditionFalse, v1alpha1.ReasonSecretInvalid),
	} {
		require.True(t, strings.HasSuffix(is.Message, want), "%s: the message is %q", kind, is.Message)
	}
	setLabel(`"true"`)
	e.waitUntilReady("mail")
	require.True(t, !strings.Contains(e.visibleText(), "hunter2"), "the content of the Secret is visible")
}

func createPolicy(t *testing.T, ns, spec string) {
	t.Helper()
	mustCreate(t, newManifest(t, "Policy", ns, "team", spec))
}

func waitForPolicy(t *testing.T, ns string, status metav1.ConditionStatus, reason string) (found *metav1.Condition) {
	t.Helper()
	poll.Until(t, "the Policy to be Ready="+string(status)+" "+reason, func() bool {
		p := mustGet(t, client.ObjectKey{Namespace: ns, Name: "team"}, &v1alpha1.Policy{})
		found = meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		return found != nil && found.Status == status && found.Reason == reason && found.ObservedGeneration == p.Generation
	})
	return found
}

func TestAPolicyDelaysWhatRunsUntilItsImagesAreAllowed(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	createPolicy(t, ns, "{limits: {allowedImages: ['registry.example/good:*']}}")
	good := testbuilder.StepImage("registry.example/good:1")
	s := createSequenceIn(t, ns, testbuilder.SequentialJob("images", "").Step("a", good).Step("b", testbuilder.StepImage("registry.example/b:1")).Obj())
	session := createSessionIn(t, ns, "fix") // its image is runner:1
	s.waitUntil("the refusal", func(*v1alpha1.SequentialJob) bool {
		status, reason := s.readCondition(v1alpha1.ConditionBlocked)
		return status == metav1.ConditionTrue && reason == v1alpha1.ReasonImageNotAllowed
	})
	s.wantEvent(v1alpha1.EventPolicyViolated)
	session.waitForCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonImageNotAllowed)
	require.Equal(t, 0, len(s.listJobs())+len(session.listJobs()))
	both := `{"spec":{"limits":{"allowedImages":["registry.example/*", "runner:*"]}}}`
	mustPatch(t, mustGet(t, client.ObjectKey{Namespace: ns, Name: "team"}, &v1alpha1.Policy{}), client.RawPatch(mergePatch, []byte(both)))
	s.succeedStep("a")
	s.succeedStep("b")
	session.waitForPhase(v1alpha1.SessionCreating)
}

// poolTestEnv runs the controller of WorkerPools. The Pods of its workers are simulated, so that no worker answers it.
type poolTestEnv struct {
	*queueEnv

	// observeRequest is called for each of the controller's requests; nil if the test observes none.
	observeRequest atomic.Pointer[func(*http.Request)]
	readings       atomic.Int64 // the number of times that the operator requested the address of a worker
}

func newPoolTestEnv(t *testing.T) *poolTestEnv {
	t.Helper()
	c := &poolTestEnv{queueEnv: newQueueEnv(t)}
	c.createQueue("mail", "lease: 5s")
	c.waitUntilReady("mail")
	c.startController()
	t.Cleanup(func() { cluster.RemoveFinalizers(t, c.ns, "WorkerPool") })
	return c
}

// localDialer connects to the brokers of tests, which are on this host.
var localDialer = bounded.NewDialer(bounded.Options{AllowLocal: true})

// startController runs the controller only for the test's namespace.
func (c *poolTestEnv) startController() {
	c.t.Helper()
	operators := rest.CopyConfig(config)
	operators.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if observe := c.observeRequest.Load(); observe != nil {
				(*observe)(request)
			}
			return next.RoundTrip(request)
		})
	})
	mgr, err := ctrl.NewManager(operators, ctrl.Options{
		Scheme: cluster.Scheme(), Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{c.ns: {}}},
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(c.t, err)
	keeper := brokerconn.NewManager(mgr.GetAPIReader(), brokerconn.Options{Dialer: localDialer})
	require.NoError(c.t, mgr.Add(keeper))
	sources := brokerconn.NewSourceReader(mgr.GetAPIReader(), brokerconn.Options{Dialer: localDialer})
	require.NoError(c.t, mgr.Add(sources))
	adminSecret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "worker-admin"}}
	createIfMissing(c.t, adminSecret)
	o := workerpoolcontroller.Options{
		Concurrency: 4, Image: "yardmaster:test", Sources: sources,
		AdminSecret: client.ObjectKeyFromObject(adminSecret), OperatorNamespace: "yardmaster-system",
	}
	o.Address = func(*corev1.Pod) string { // on which nothing listens
		c.readings.Add(1)
		return "127.0.0.1:1"
	}
	require.NoError(c.t, workerpoolcontroller.New(mgr, keeper, o).SetupWithManager(mgr))
	background.Run(c.t, mgr.Start)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// waitFor waits until the condition is true. Its failure shows the status of all WorkerPools.
func (c *poolTestEnv) waitFor(what string, holds func() bool) {
	c.t.Helper()
	if err := poll.UntilNil(c.t.Context(), func() error {
		if holds() {
			return nil
		}
		statuses, list := "not yet:", v1alpha1.WorkerPoolList{}
		err := cluster.List(c.t.Context(), &list, client.InNamespace(c.ns))
		for i := range list.Items {
			statuses += fmt.Sprintf("\n%s: %+v", list.Items[i].Name, list.Items[i].Status)
		}
		return errors.Join(errors.New(statuses), err)
	}); err != nil {
		c.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// createPool creates a WorkerPool for the queue mail, with more fields in its spec. Only in mode Signal, workers need not answer.
func (c *poolTestEnv) createPool(name, spec string) {
	c.t.Helper()
	const workers = "{image: 'worker:1', concurrency: 2, queues: [{name: mail}], drain: {mode: Signal}, "
	mustCreate(c.t, newManifest(c.t, "WorkerPool", c.ns, name, workers+spec+"}"))
}

func (c *poolTestEnv) getPool(name string) *v1alpha1.WorkerPool {
	return mustGet(c.t, client.ObjectKey{Namespace: c.ns, Name: name}, &v1alpha1.WorkerPool{})
}

func (c *poolTestEnv) waitForPool(name, what string, holds func(wp *v1alpha1.WorkerPool) bool) {
	c.t.Helper()
	c.waitFor(name+" to be "+what, func() bool { return holds(c.getPool(name)) })
}

func (c *poolTestEnv) waitForCondition(name, kind string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	c.t.Helper()
	var found *metav1.Condition
	c.waitForPool(name, kind+"="+string(status)+" "+reason, func(wp *v1alpha1.WorkerPool) bool {
		found = meta.FindStatusCondition(wp.Status.Conditions, kind)
		return found != nil && found.Status == status && found.Reason == reason
	})
	return found
}

type sharedObject struct {
	object client.Object
	// externalPatch is an external change, and isRestored reports whether the operator reverted it.
	externalPatch string
	isRestored    func() bool
}

func sharedObjectsOf(c *poolTestEnv) map[string]*sharedObject {
	named := metav1.ObjectMeta{Namespace: c.ns, Name: "mailers-workers"}
	config, service := &corev1.ConfigMap{ObjectMeta: named}, &corev1.Service{ObjectMeta: named}
	account, budget := &corev1.ServiceAccount{ObjectMeta: named}, &policyv1.PodDisruptionBudget{ObjectMeta: named}
	network := &networkingv1.NetworkPolicy{ObjectMeta: named}
	selects := func(labels map[string]string) bool {
		return len(labels) == 1 && labels[workerpool.LabelWorkerPool] == "mailers"
	}
	return map[string]*sharedObject{
		"ConfigMap": {config, `{"data":{"concurrency":"99","queues":null}}`, func() bool {
			return config.Data["concurrency"] == "2" && config.Data["queues"] != ""
		}},
		"Service": {service, `{"spec":{"selector":{"yardmaster.dev/workerpool":"others"}}}`, func() bool { return selects(service.Spec.Selector) }},
		"ServiceAccount": {account, `{"automountServiceAccountToken":true}`, func() bool {
			return account.AutomountServiceAccountToken != nil && !*account.AutomountServiceAccountToken
		}},
		"NetworkPolicy":       {network, `{"spec":{"ingress":[{}]}}`, func() bool { return len(network.Spec.Ingress) == 2 && len(network.Spec.Ingress[0].From) == 1 }},
		"PodDisruptionBudget": {budget, `{"spec":{"maxUnavailable":"100%"}}`, func() bool { return *budget.Spec.MaxUnavailable == intstr.FromInt32(1) }},
	}
}

func (c *poolTestEnv) waitForObject(what string, object client.Object, holds func() bool) {
	c.t.Helper()
	c.waitFor(what, func() bool {
		err := cluster.Get(c.t.Context(), client.ObjectKeyFromObject(object), object)
		require.NoError(c.t, client.IgnoreNotFound(err))
		return err == nil && holds()
	})
}

func TestExternalChangesOfAPoolAreReverted(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t)
	c.createPool("mailers", "autoscaling: {minReplicas: 2, maxReplicas: 2}")
	c.waitForPool("mailers", "rolled out", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.Ready == 2 && wp.Status.CurrentRevision != "" && wp.Status.CurrentRevision == wp.Status.UpdatedRevision
	})
	objects := sharedObjectsOf(c)
	for kind, p := range objects {
		c.waitForObject("the "+kind+" to be created", p.object, p.isRestored)
	}
	t.Run("without changes, only the status is written", c.writesOnlyTheStatus)
	t.Run("of a revision", c.restoresItsRevision)
	for kind, p := range objects {
		t.Run("of its "+kind, func(t *testing.T) {
			mustPatch(t, p.object, client.RawPatch(mergePatch, []byte(p.externalPatch)))
			changed := time.Now()
			c.waitForObject("the "+kind+" to be restored", p.object, p.isRestored)
			assertWithin(t, "the "+kind+" is restored", 5*time.Second, changed)

			old := p.object.GetUID()
			mustDelete(t, p.object)
			c.waitForObject("the "+kind+" to be recreated", p.object, func() bool { return p.object.GetUID() != old && p.isRestored() })
			require.True(t, metav1.IsControlledBy(p.object, c.getPool("mailers")), "it is not controlled by the pool")
		})
	}
}

func (c *poolTestEnv) writesOnlyTheStatus(t *testing.T) {
	var writes atomic.Pointer[string]
	c.observeRequest.Store(new(func(r *http.Request) {
		isExpected := strings.Contains(r.URL.Path, "/queues/") || strings.HasSuffix(r.URL.Path, "/workerpools/mailers/status")
		if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/namespaces/"+c.ns+"/") && !isExpected {
			writes.Store(new(r.Method + " " + r.URL.Path))
		}
	}))
	defer c.observeRequest.Store(nil)
	before := c.readings.Load()
	c.waitFor("each worker to be read five times", func() bool { return c.readings.Load() >= before+5*2 })
	if what := writes.Load(); what != nil {
		t.Errorf("unexpected write: %s", *what)
	}
}

func (c *poolTestEnv) restoresItsRevision(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: c.getPool("mailers").Status.CurrentRevision}}
	right := func() bool {
		return d.Spec.Template.Spec.Containers[0].Image == "worker:1" && d.Labels[workerpool.LabelWorkerPool] == "mailers" && d.Labels[workerpool.LabelRevision] != ""
	}
	for _, edit := range []string{
		`{"spec":{"template":{"spec":{"containers":[{"name":"worker","image":"worker:changed"}]}}}}`,
		`{"metadata":{"labels":null}}`,
		`{"metadata":{"labels":{"yardmaster.dev/revision":null}}}`,
	} {
		mustPatch(t, d, client.RawPatch(types.StrategicMergePatchType, []byte(edit)))
		c.waitForObject("the revision to be restored after "+edit, d, right)
		c.waitForPool("mailers", "back at two workers", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 2 && wp.Status.Replicas == 2 })
	}
	require.True(t, *d.Spec.Replicas == 2, "it has %d replicas", *d.Spec.Replicas)
	got := c.getPool("mailers").Status
	require.True(t, got.CurrentRevision == d.Name && len(got.Revisions) == 1, "the revisions are %+v", got.Revisions)
}

func TestPoolDoesNotChangeAnObjectOfAnotherOwner(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t)
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "mailers-workers"}, Data: map[string]string{"a": "b"}}
	mustCreate(t, mine)
	c.createPool("mailers", "replicas: 1")
	is := c.waitForCondition("mailers", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNameTaken)
	want := "ConfigMap mailers-workers already exists and does not belong to this WorkerPool"
	require.True(t, strings.Contains(is.Message, want), "the message is %q, want %q", is.Message, want)
	err := cluster.Get(t.Context(), client.ObjectKeyFromObject(mine), mine)
	require.True(t, err == nil && len(mine.Data) == 1, "the ConfigMap was changed: %v, %v", err, mine.Data)
}

const gatewayAccount = "yardmaster-gateway"

// gatewayEnv is a gateway with its own permissions, that serves one namespace with a NATS server.
type gatewayEnv struct {
	*queueEnv

	deployment *deployment
	url, ca    string
}

func newGatewayEnv(t *testing.T) *gatewayEnv {
	d := installPermissions(t, "queue", false)
	e := &gatewayEnv{queueEnv: &queueEnv{t: t, ns: d.watched, Server: natstest.Start(t)}, deployment: d}
	t.Cleanup(e.abandonQueues)
	e.createSecret("yardmaster-broker", "url", "nats://"+e.Address())
	e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: yardmaster-broker}}", "orders", "")
	e.waitUntilReady("orders")
	e.createAccount(d.operator, gatewayAccount)
	as := rest.AnonymousClientConfig(config)
	as.BearerToken = e.token(d.operator, gatewayAccount)
	e.start(as)
	return e
}

func (e *gatewayEnv) createAccount(ns, name string) {
	e.t.Helper()
	mustCreate(e.t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
}

// token returns a token of a ServiceAccount for audiences; none is the API server.
func (e *gatewayEnv) token(ns, name string, audiences ...string) string {
	e.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	require.NoError(e.t, cluster.SubResource("token").Create(e.t.Context(), account, request))
	return request.Status.Token
}

func (e *gatewayEnv) start(as *rest.Config) {
	e.t.Helper()
	directory := e.t.TempDir()
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil) // curl needs a subject
	require.NoError(e.t, err)
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		require.NoError(e.t, os.WriteFile(filepath.Join(directory, name), content, 0o600))
	}
	options, err := gateway.ParseFlags([]string{
		"--bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
		"--certificate-dir=" + directory, "--operator-namespace=" + e.deployment.operator, "--allow-local-brokers",
	}, nil, io.Discard)
	require.NoError(e.t, err)
	log, err := os.Create(testenv.Artifact("gateway-" + e.ns + ".log"))
	require.NoError(e.t, err)
	background.Run(e.t, func(ctx context.Context) error {
		return gateway.Run(ctx, as, options, slog.New(slog.NewTextHandler(log, nil)))
	})
	e.ca = filepath.Join(directory, "tls.crt")
	poll.Until(e.t, "the gateway to log the address of its API", func() bool {
		text, err := os.ReadFile(log.Name())
		require.NoError(e.t, err)
		address := regexp.MustCompile(`msg=Started address=(\S+)`).FindSubmatch(text)
		if address != nil {
			e.url = "https://" + string(address[1])
		}
		return address != nil
	})
}

type answer struct {
	ID        string
	Duplicate bool
	Reason    string
	Message   string
}

// send runs the program with curl from the examples. It returns whether curl succeeded.
func (e *gatewayEnv) send(token, queue string, arguments ...string) (answer, bool) {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "token")
	require.NoError(e.t, os.WriteFile(file, []byte(token), 0o600))
	arguments = append([]string{e.url, queue, `{"id": "7"}`}, arguments...)
	command := exec.CommandContext(e.t.Context(), filepath.Join(repositoryRoot, "examples", "producer", "enqueue.sh"), arguments...)
	command.Env = append(os.Environ(), "TOKEN_FILE="+file, "CA_FILE="+e.ca, "no_proxy=127.0.0.1")
	output, err := command.Output()
	var a answer
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		e.t.Fatal(err)
	}
	jsonErr := json.Unmarshal(output, &a)
	require.True(e.t, jsonErr == nil, "%s: %v", output, err)
	return a, err == nil
}

func TestTheGatewayRefusesThoseWhoMayNot(t *testing.T) {
	t.Parallel()
	e := newGatewayEnv(t)
	e.createAccount(e.ns, "stranger")
	stranger := e.token(e.ns, "stranger", gateway.DefaultAudience)
	for title, row := range map[string]struct {
		token, queue, reason string
	}{
		"no permission":                      {stranger, "orders", "Forbidden"},
		"no permission, another namespace":   {stranger, e.deployment.operator + "/orders", "Forbidden"},
		"a token for the API server":         {e.token(e.ns, "stranger"), "orders", "Unauthenticated"},
		"a token for another service":        {e.token(e.ns, "stranger", "vault"), "orders", "Unauthenticated"},
		"a changed token":                    {stranger[:len(stranger)-4] + "AAAA", "orders", "Unauthenticated"},
		"a namespace that it does not serve": {e.permit("elsewhere", e.deployment.reported), "orders", "NamespaceNotServed"},
	} {
		got, sent := e.send(row.token, row.queue, "--", "--retry", "0")
		require.True(t, !sent && got.Reason == row.reason, "%s: %+v, want %s", title, got, row.reason)
	}

	// A Secret that the gateway may not read. The operator may.
	e.createSecret("private", "url", "nats://"+e.Address())
	e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: private}}", "hidden", "")
	e.waitUntilReady("hidden")
	got, sent := e.send(e.permit("insider", e.ns), "hidden", "--", "--retry", "0")
	require.True(t, !sent && strings.Contains(got.Message, `no permission to read Secret "private"`), "a Secret that is not in its Role: %+v", got)
	require.True(t, len(e.messagesOf("orders")) == 0 && len(e.messagesOf("hidden")) == 0, "a job was stored")
}

// permit creates a ServiceAccount that may send jobs to the Queues of its namespace, and returns its token.
func (e *gatewayEnv) permit(name, ns string) string {
	e.t.Helper()
	e.createAccount(ns, name)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"yardmaster.dev"}, Resources: []string{"queues/jobs"}, Verbs: []string{"create"}, ResourceNames: []string{"orders", "hidden"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	}
	mustCreate(e.t, role)
	mustCreate(e.t, binding)
	d := *e.deployment
	d.operator, d.serviceAccount = ns, name
	d.wantPermissions(e.t, ns, []string{"create queues.yardmaster.dev/jobs orders", "create queues.yardmaster.dev/jobs hidden"})
	return e.token(ns, name, gateway.DefaultAudience)
}
