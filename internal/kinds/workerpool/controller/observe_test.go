package controller

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

func TestRevisionsAreTheDeploymentsAndStatefulSetsOfThePool(t *testing.T) {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mail", UID: "1"}}
	created := metav1.NewTime(time.Unix(1_700_000_000, 0))
	metadata := func(name string, owner *v1alpha1.WorkerPool) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: workerpool.WorkerSelector("mail"), CreationTimestamp: created,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.GroupVersion.WithKind("WorkerPool"))},
		}
	}
	selector := func(hash string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{workerpool.LabelRevision: hash}}
	}
	other := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mail", UID: "2"}}
	cache := fake.NewClientBuilder()
	for _, object := range indexedByPool() { // as in the cache of the manager
		cache.WithIndex(object, workerpool.LabelWorkerPool, poolLabels)
	}
	r := &Reconciler{Clients: kube.Clients{Client: cache.WithObjects(
		&appsv1.Deployment{
			ObjectMeta: metadata("mail-a", wp), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector("a")},
			Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"},
			}},
		},
		&appsv1.StatefulSet{ObjectMeta: metadata("mail-b", wp), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2)), Selector: selector("b")}},
		&appsv1.Deployment{ObjectMeta: metadata("mail-c", other), Spec: appsv1.DeploymentSpec{Selector: selector("c")}},
	).Build()}}
	observed := &Observed{Observation: workerpool.Observation{Pool: wp}, workloads: map[string]client.Object{}}
	require.NoError(t, r.observeRevisions(t.Context(), observed))
	want := []workerpool.Revision{
		{Name: "mail-a", Hash: "a", Created: created.Time, Replicas: 3, CreationFailure: "exceeded quota"},
		{Name: "mail-b", Hash: "b", Created: created.Time, Replicas: 2, Ordered: true},
	}
	require.Equal(t, want, observed.Revisions)
	require.True(t, len(observed.workloads) == 2, "%d workloads, want those of the two revisions", len(observed.workloads))
}

func TestAnnotationsThatTheOperatorDidNotWriteAreForeign(t *testing.T) {
	written := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for title, row := range map[string]struct {
		annotations map[string]string
		want        workerpool.Protection
	}{
		"none":                    {nil, workerpool.Protection{}},
		"one of a user":           {map[string]string{workerpool.AnnotationSafeToEvict: "true"}, workerpool.Protection{Active: true, Foreign: true}},
		"another one of a user":   {map[string]string{workerpool.AnnotationDoNotDisrupt: "true"}, workerpool.Protection{Active: true, Foreign: true}},
		"the operator's":          {map[string]string{workerpool.AnnotationSafeToEvict: "false", workerpool.AnnotationProtection: written.Format(time.RFC3339Nano)}, workerpool.Protection{Active: true, Written: written}},
		"removed by the operator": {map[string]string{workerpool.AnnotationProtection: written.Format(time.RFC3339Nano)}, workerpool.Protection{Written: written}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: row.annotations}}
		got := workerOfPod(pod).Protection
		require.True(t, got == row.want, "%s: %+v", title, got)
	}
}

// A user can change the broker of a Queue to the operator's, where its name may be that of a queue of
// another namespace. The pool waits until the Queue is proven to own the queue there.
func TestAPoolWaitsUntilItsQueueIsProvenToOwnTheQueueOnItsBroker(t *testing.T) {
	own := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail"}}
	q.Status.Name, q.Status.Effective = "shared", &v1alpha1.QueueEffective{QueueSettings: v1alpha1.QueueSettings{Broker: own}}
	q.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigSynced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSynced}}
	observe := func(on *v1alpha1.Broker) *Observed {
		o := &Observed{queues: &observedQueues{all: []observedQueue{{object: q, broker: on}}}}
		o.checkOwnership()
		return o
	}
	o := observe(own)
	require.True(t, o.queues != nil && o.Problem == nil, "the Queue owns its queue, and the pool has the problem %v", o.Problem)
	want := decision.Problem{Reason: v1alpha1.ReasonQueueNotReady, Message: `spec.queues[0]: Queue "mail" does not own a queue on its broker yet; see its conditions`}
	o = observe(nil)
	require.Equal(t, &want, o.Problem)
	require.True(t, o.queues == nil && o.StatsError == want.Message, "queues %v, %s", o.queues, o.StatsError)
}

func TestWorkersUseTheLoginMethodOfTheSecret(t *testing.T) {
	const dir = "/etc/yardmaster/credentials/"
	for name, row := range map[string]struct {
		secret map[string]string
		want   worker.BrokerConfig
		keys   []string // mounted keys: another login method creates a revision
	}{
		"user name and password":               {map[string]string{"username": "me", "password": "p"}, worker.BrokerConfig{UsernameFile: dir + "username", PasswordFile: dir + "password"}, []string{"username", "password"}},
		"user name only":                       {map[string]string{"username": "me", "password": ""}, worker.BrokerConfig{UsernameFile: dir + "username"}, []string{"username"}},
		"token":                                {map[string]string{"token": "t", "username": ""}, worker.BrokerConfig{TokenFile: dir + "token"}, []string{"token"}},
		"credentials file":                     {map[string]string{"creds": "c"}, worker.BrokerConfig{CredentialsFile: dir + "creds"}, []string{"creds"}},
		"nkey":                                 {map[string]string{"nkey": "SU"}, worker.BrokerConfig{NKeyFile: dir + "nkey"}, []string{"nkey"}},
		"one method if the Secret has several": {map[string]string{"creds": "c", "username": "me", "token": "t"}, worker.BrokerConfig{CredentialsFile: dir + "creds"}, []string{"creds"}},
	} {
		t.Run(name, func(t *testing.T) {
			observed := observeWithSecret(t, row.secret)
			require.True(t, observed.Problem == nil, "problem %+v", observed.Problem)
			c := require.Call(worker.ParseConfig([]byte(observed.Config.File))).Succeeds(t)
			row.want.URLFile = "/etc/yardmaster/url/url"
			require.Equal(t, row.want, c.Broker)
			require.Call(worker.New(worker.Options{Config: c}, func(context.Context, *worker.Job) error { return nil })).Succeeds(t)
			require.Equal(t, workerpool.MountedSecret{Secret: "login", Keys: row.keys}, observed.Config.Secrets["credentials"])
		})
	}
}

func TestSecretWithoutALoginIsInvalid(t *testing.T) {
	for _, secret := range []map[string]string{{}, {"password": "p"}, {"username": "", "token": "", "creds": "", "nkey": ""}} {
		p := observeWithSecret(t, secret).Problem
		require.True(t, p != nil && p.Reason == v1alpha1.ReasonSecretInvalid, "%v: problem %+v", secret, p)
		require.Contains(t, p.Message, `"login" has none of the keys username, token, creds, nkey`)
	}
}

// Runtimes of earlier versions refuse unknown fields.
func TestConnectionSettingsAreInTheConfigurationOnlyIfTheyAreSet(t *testing.T) {
	secret := map[string]string{"nkey": "SU"}
	without := observeWithSecret(t, secret).Config
	for _, setting := range []string{"inboxPrefix", "jetStreamDomain", "sentinel"} {
		require.True(t, !strings.Contains(without.File, setting) && without.Connection == "", "without settings: %+v", without)
	}
	c, err := worker.ParseConfig([]byte(without.File))
	require.True(t, err == nil && slices.Equal(c.Queues[0].Priorities, []worker.PriorityConfig{{Name: "default", Weight: 1}, {Name: "removed", Weight: 1}}), "%+v: %v", c, err)
	o := observeWithSecret(t, secret, func(key *brokeraccess.Key) { key.JetStreamDomain, key.InboxPrefix = "hub", "_INBOX_a" })
	c, err = worker.ParseConfig([]byte(o.Config.File))
	require.True(t, err == nil && c.Broker.JetStreamDomain == "hub" && c.Broker.InboxPrefix == "_INBOX_a", "%+v: %v", c.Broker, err)
	require.True(t, o.Config.Connection == "jetStreamDomain=hub,inboxPrefix=_INBOX_a", "the connection is %q", o.Config.Connection)
}

func TestWorkersLogInToTheSentinelsAndMountOnlyTheKeysThatTheyUse(t *testing.T) {
	withSentinels := func(key *brokeraccess.Key) {
		key.CredentialsSecret, key.SentinelMaster, key.SentinelSecret, key.TLSSecret = "", "main", "login", "login"
	}
	o := observeWithSecret(t, map[string]string{"username": "me", "password": "p", "ca.crt": "c", "tls.crt": ""}, withSentinels)
	c := require.Call(worker.ParseConfig([]byte(o.Config.File))).Succeeds(t)
	const dir = "/etc/yardmaster/sentinel/"
	require.Equal(t, worker.SentinelConfig{MasterName: "main", UsernameFile: dir + "username", PasswordFile: dir + "password"}, c.Broker.Sentinel)
	require.Equal(t, "sentinelMaster=main", o.Config.Connection)
	require.Equal(t, workerpool.MountedSecret{Secret: "login", Keys: []string{"username", "password"}}, o.Config.Secrets["sentinel"])
	require.Equal(t, workerpool.MountedSecret{Secret: "login", Keys: []string{"ca.crt"}}, o.Config.Secrets["tls"]) // another key: a new revision
	require.Equal(t, v1alpha1.ReasonSecretInvalid, observeWithSecret(t, map[string]string{"password": "p"}, withSentinels).Problem.Reason)
}

// observeWithSecret observes a pool whose workers log in with the Secret.
func observeWithSecret(t *testing.T, secret map[string]string, changes ...func(*brokeraccess.Key)) *Observed {
	t.Helper()
	login := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "login", Labels: map[string]string{v1alpha1.LabelBroker: "true"}}, Data: map[string][]byte{}}
	for key, value := range secret {
		login.Data[key] = []byte(value)
	}
	r := &Reconciler{Clients: kube.Clients{Live: fake.NewClientBuilder().WithObjects(login).Build()}, secretKeys: cache.NewLRUExpireCache(1)}
	key := brokeraccess.Key{Namespace: "a", Engine: v1alpha1.EngineNATS, URLSecret: "broker", URLKey: "url", CredentialsSecret: "login"}
	for _, change := range changes {
		change(&key)
	}
	observed := &Observed{
		Observation: workerpool.Observation{Pool: &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "mail"}}},
		queues: &observedQueues{
			conn: &brokerconn.Conn{Key: key}, all: []observedQueue{{object: &v1alpha1.Queue{Status: v1alpha1.QueueStatus{Priorities: []string{"removed"}}}, config: broker.DefaultQueueConfig("orders"), weight: 1}},
		},
	}
	require.NoError(t, r.observeConfig(t.Context(), observed))
	return observed
}

func TestPoolIsReconciledWhenItsQueueBecomesReadyOrProvesItsOwnerOrHasOtherPriorities(t *testing.T) {
	proven := &v1alpha1.Queue{}
	proven.Status.Name, proven.Status.Effective = "mail", &v1alpha1.QueueEffective{}
	proven.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigSynced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSynced}}
	ready, notReady := &v1alpha1.Queue{}, &v1alpha1.Queue{}
	ready.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	notReady.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}}
	for title, test := range map[string]struct {
		before, after *v1alpha1.Queue
		want          bool
	}{
		"created on its broker":       {&v1alpha1.Queue{}, ready, true},
		"ready again":                 {notReady, ready, true},
		"still ready, other stats":    {ready, ready, false},
		"no longer ready":             {ready, notReady, false},
		"proven to own its queue":     {&v1alpha1.Queue{}, proven, true},
		"still proven, other changes": {proven, proven, false},
		"a priority became empty":     {&v1alpha1.Queue{Status: v1alpha1.QueueStatus{Priorities: []string{"low"}}}, &v1alpha1.Queue{}, true},
	} {
		require.True(t, changesForPools.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}) == test.want, "%s: not %t", title, test.want)
	}
}

func TestGaugesShowTheStatusOfEachPool(t *testing.T) {
	want := `
yardmaster_workerpool_conditions{condition="Degraded",namespace="a",pool="mail",reason="CrashLoop",status="True"} 1
yardmaster_workerpool_decisions{namespace="a",pool="mail",reason="MaxReplicas"} 1
yardmaster_workerpool_messages{namespace="a",pool="mail",state="backlog"} 1200
yardmaster_workerpool_messages{namespace="a",pool="mail",state="in_flight"} 50
yardmaster_workerpool_messages{namespace="a",pool="mail",state="snoozed"} 7
yardmaster_workerpool_objectives{met="False",namespace="a",pool="mail"} 1
yardmaster_workerpool_objectives{met="Unknown",namespace="a",pool="video"} 1
yardmaster_workerpool_workers{namespace="a",pool="mail",state="breaker_open"} 2
yardmaster_workerpool_workers{namespace="a",pool="mail",state="busy"} 5
yardmaster_workerpool_workers{namespace="a",pool="mail",state="desired"} 8
yardmaster_workerpool_workers{namespace="a",pool="mail",state="draining"} 1
yardmaster_workerpool_workers{namespace="a",pool="mail",state="ready"} 6
yardmaster_workerpool_workers{namespace="a",pool="mail",state="recommended"} 12
yardmaster_workerpool_workers{namespace="a",pool="video",state="desired"} 2
yardmaster_workerpool_workers{namespace="a",pool="video",state="draining"} 0
yardmaster_workerpool_workers{namespace="a",pool="video",state="ready"} 2
yardmaster_workerpool_workers{namespace="a",pool="video",state="recommended"} 2
`
	require.Equal(t, strings.TrimPrefix(want, "\n"), gaugesOfTwoPools(t))
}

// gaugesOfTwoPools returns the gauges of the pools mail and video, which want 8 and 2 workers.
func gaugesOfTwoPools(t *testing.T) string {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	pool := func(name string, status v1alpha1.WorkerPoolStatus) *v1alpha1.WorkerPool {
		return &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Status: status}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pool("mail", v1alpha1.WorkerPoolStatus{
			Desired: 8, WorkerCounts: v1alpha1.WorkerCounts{Ready: 6, Draining: 1}, Busy: new(int32(5)), OpenBreakers: new(int32(2)), Snoozed: new(int64(7)), MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(1200)), InFlight: new(int64(50))},
			ObjectiveMet:   metav1.ConditionFalse,
			LastDecision:   &v1alpha1.ScaleDecision{Recommendation: 12, Explanation: v1alpha1.Explanation{Reason: "MaxReplicas"}},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCrashLoop}}},
		}),
		pool("video", v1alpha1.WorkerPoolStatus{Desired: 2, WorkerCounts: v1alpha1.WorkerCounts{Ready: 2}, ObjectiveMet: metav1.ConditionUnknown}),
	).Build()
	return gatherText(t, statusCollector(reader))
}

func TestGaugesWithoutNamesAreSumsOfANamespace(t *testing.T) {
	metric.OmitObjectNames(true)
	t.Cleanup(func() { metric.OmitObjectNames(false) })
	const sum = `yardmaster_workerpool_workers{namespace="a",pool="",state="desired"} 10`
	got := gaugesOfTwoPools(t)
	require.Contains(t, got, sum)
	require.True(t, !strings.Contains(got, "mail") && !strings.Contains(got, "video"), "the name of a pool, in\n%s", got)
}

func TestCountersOfAPoolEndWithIt(t *testing.T) {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "counted"}}
	countChanges(wp, &v1alpha1.WorkerPoolStatus{}, &v1alpha1.WorkerPoolStatus{Desired: 3})
	series := `yardmaster_workerpool_scalings_total{direction="up",namespace="a",pool="counted",reason="Manual"} 1`
	require.Contains(t, gatherText(t, scalingsTotal), series)
	forgetMetrics(client.ObjectKeyFromObject(wp))
	text := gatherText(t, scalingsTotal)
	require.True(t, !strings.Contains(text, "counted"), "counters of a pool that does not exist:\n%s", text)
}

// gatherText returns the metrics of a collector in the text format, without comments.
func gatherText(t *testing.T, collector prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	families := require.Call(registry.Gather()).Succeeds(t)
	var text strings.Builder
	for _, family := range families {
		require.Call(expfmt.MetricFamilyToText(&text, family)).Succeeds(t)
	}
	return regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text.String(), "")
}
