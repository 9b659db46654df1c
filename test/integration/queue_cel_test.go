package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// given is a manifest of the kind, its spec as written.
func given(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %q}\nspec: %s\n", v1alpha1.GroupVersion, kind, name, spec)
	manifest, err := decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return manifest
}

// waitForKinds waits until the API server serves the kinds whose CRDs were just applied.
func waitForKinds(t *testing.T) {
	t.Helper()
	for _, list := range []client.ObjectList{
		&v1alpha1.QueueList{}, &v1alpha1.WorkerPoolList{}, &v1alpha1.PolicyList{}, &v1alpha1.AgenticSessionList{}, &v1alpha1.SessionRunnerList{},
	} {
		eventually(t, fmt.Sprintf("%T to be served", list), func() bool {
			return cluster.List(t.Context(), list) == nil
		})
	}
}

// badSpec is a spec, or a change of one, that the API server refuses.
type badSpec struct {
	name string
	spec string
	// becomes is what the spec is changed to, if the change is the mistake.
	becomes string
	want    string
}

// tryAll gives the API server each of the specs, and compares what it says.
func tryAll(t *testing.T, kind string, specs map[string]badSpec) {
	waitForKinds(t)
	for title, bad := range specs {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			ns := namespace(t)
			strict := strictClient(t, &warningList{})
			if bad.name == "" {
				bad.name = "demo"
			}
			object := given(t, kind, bad.name, bad.spec)
			object.SetNamespace(ns)
			err := apply(t.Context(), strict, object, false)
			if bad.becomes != "" {
				if err != nil {
					t.Fatalf("the spec is refused before it is changed: %v", err)
				}
				object = given(t, kind, bad.name, bad.becomes)
				object.SetNamespace(ns)
				err = apply(t.Context(), strict, object, true)
			}
			if err == nil {
				t.Fatalf("it is taken, want: %s", bad.want)
			}
			says := stable(messageOf(err))
			if _, about, invalid := strings.Cut(says, "is invalid: "); invalid {
				says = about
			}
			if diff := cmp.Diff(bad.want, says); diff != "" {
				t.Errorf("the API server says something else (-want, +got):\n%s", diff)
			}
		})
	}
}

func TestQueueRules(t *testing.T) {
	tryAll(t, "Queue", map[string]badSpec{
		"a name the broker cannot have": {
			spec: `{name: Mail}`,
			want: `spec.name: Invalid value: "Mail": spec.name in body should match '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'`,
		},
		"an object's name the broker cannot have": {
			name: "mail.eu", spec: `{}`,
			want: "spec.name: Invalid value: metadata.name is no name for a queue, which is at most 63 lower-case letters, digits and dashes: give spec.name",
		},
		"a reserved name": {
			spec: `{name: yardmaster-mail}`,
			want: "spec.name: Invalid value: name is reserved: what begins with yardmaster is the operator's own",
		},
		"a reserved name of the object": {
			name: "yardmaster", spec: `{}`,
			want: "spec.name: Invalid value: name is reserved: what begins with yardmaster is the operator's own",
		},
		"another name": {
			spec: `{name: mail}`, becomes: `{name: post}`,
			want: "spec.name: Invalid value: name is immutable: the messages on the broker are kept under it",
		},
		"a name where the object's own was in use": {
			spec: `{}`, becomes: `{name: post}`,
			want: "spec.name: Invalid value: name is immutable: the messages on the broker are kept under it",
		},
		"no name where another than the object's was": {
			spec: `{name: mail}`, becomes: `{}`,
			want: "spec.name: Invalid value: name is immutable: the messages on the broker are kept under it",
		},
		"nine priorities": {
			spec: `{priorities: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}, {name: h}, {name: i}]}`,
			want: "spec.priorities: Too many: 9: must have at most 8 items",
		},
		"no priority": {
			spec: `{priorities: []}`,
			want: "spec.priorities: Invalid value: 0: spec.priorities in body should have at least 1 items",
		},
		"two priorities of one name": {
			spec: `{priorities: [{name: a}, {name: a}]}`,
			want: `spec.priorities[1]: Duplicate value: {"name":"a"}`,
		},
		"a priority without weight": {
			spec: `{priorities: [{name: a, weight: 0}]}`,
			want: "spec.priorities[0].weight: Invalid value: 0: spec.priorities[0].weight in body should be greater than or equal to 1",
		},
		"a priority with too much weight": {
			spec: `{priorities: [{name: a, weight: 101}]}`,
			want: "spec.priorities[0].weight: Invalid value: 101: spec.priorities[0].weight in body should be less than or equal to 100",
		},
		"a priority's name with capitals": {
			spec: `{priorities: [{name: High}]}`,
			want: `spec.priorities[0].name: Invalid value: "High": spec.priorities[0].name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'`,
		},
		"two of one weight in a strict order": {
			spec: `{strictPriority: true, priorities: [{name: a, weight: 2}, {name: b, weight: 2}]}`,
			want: "spec.priorities: Invalid value: with strictPriority the weights are the order: no two may be the same",
		},
		"a rate without a limit": {
			spec: `{rateLimit: {per: 1s}}`,
			want: "spec.rateLimit.limit: Required value",
		},
		"a rate of 0": {
			spec: `{rateLimit: {limit: 0}}`,
			want: "spec.rateLimit.limit: Invalid value: 0: spec.rateLimit.limit in body should be greater than or equal to 1",
		},
		"a rate per no time": {
			spec: `{rateLimit: {limit: 1, per: 0s}}`,
			want: `spec.rateLimit.per: Invalid value: "0s": per must be a duration from 1s to 24h`,
		},
		"a burst of 0": {
			spec: `{rateLimit: {limit: 1, burst: 0}}`,
			want: "spec.rateLimit.burst: Invalid value: 0: spec.rateLimit.burst in body should be greater than or equal to 1",
		},
		"nothing in flight": {
			spec: `{maxInFlight: 0}`,
			want: "spec.maxInFlight: Invalid value: 0: spec.maxInFlight in body should be greater than or equal to 1",
		},
		"more in flight than the queue holds": {
			spec: `{maxInFlight: 11, maxBacklog: 10}`,
			want: "spec.maxInFlight: Invalid value: maxInFlight must not be greater than maxBacklog",
		},
		"a queue that holds nothing": {
			spec: `{maxBacklog: 0}`,
			want: "spec.maxBacklog: Invalid value: 0: spec.maxBacklog in body should be greater than or equal to 1",
		},
		"a lease too short to be renewed": {
			spec: `{lease: 4s}`,
			want: `spec.lease: Invalid value: "4s": lease must be a duration from 5s to 1h`,
		},
		"a lease longer than an hour": {
			spec: `{lease: 61m}`,
			want: `spec.lease: Invalid value: "61m": lease must be a duration from 5s to 1h`,
		},
		"a lease that is no duration": {
			spec: `{lease: 5 minutes}`,
			want: `spec.lease: Invalid value: "5 minutes": lease must be a duration from 5s to 1h`,
		},
		"a lease without a unit": {
			spec: `{lease: "30"}`,
			want: `spec.lease: Invalid value: "30": lease must be a duration from 5s to 1h`,
		},
		"a lease that is a number": {
			spec: `{lease: 30}`,
			want: `spec.lease: Invalid value: "integer": spec.lease in body must be of type string: "integer"`,
		},
		"a lease of days": {
			spec: `{lease: 1d}`,
			want: `spec.lease: Invalid value: "1d": lease must be a duration from 5s to 1h`,
		},
		"a negative delay": {
			spec: `{retry: {initialDelay: -1s}}`,
			want: `spec.retry.initialDelay: Invalid value: "-1s": initialDelay must be a duration from 0s to 24h`,
		},
		"a first delay longer than any": {
			spec: `{retry: {initialDelay: 2m, maxDelay: 1m}}`,
			want: "spec.retry.initialDelay: Invalid value: initialDelay must not be longer than maxDelay",
		},
		"no attempt": {
			spec: `{retry: {maxAttempts: 0}}`,
			want: "spec.retry.maxAttempts: Invalid value: 0: spec.retry.maxAttempts in body should be greater than or equal to 1",
		},
		"delays that shrink": {
			spec: `{retry: {multiplierPercent: 99}}`,
			want: "spec.retry.multiplierPercent: Invalid value: 99: spec.retry.multiplierPercent in body should be greater than or equal to 100",
		},
		"more jitter than delay": {
			spec: `{retry: {jitterPercent: 101}}`,
			want: "spec.retry.jitterPercent: Invalid value: 101: spec.retry.jitterPercent in body should be less than or equal to 100",
		},
		"dead letters moved nowhere": {
			spec: `{deadLetter: {onDelete: Move}}`,
			want: "spec.deadLetter.moveTo: Invalid value: moveTo is needed with onDelete: Move, and only with it",
		},
		"dead letters moved without being asked to": {
			spec: `{deadLetter: {moveTo: other}}`,
			want: "spec.deadLetter.moveTo: Invalid value: moveTo is needed with onDelete: Move, and only with it",
		},
		"dead letters moved to the queue itself": {
			spec: `{deadLetter: {onDelete: Move, moveTo: demo}}`,
			want: "spec.deadLetter.moveTo: Invalid value: moveTo must be another Queue",
		},
		"an alert without dead letters": {
			spec: `{deadLetter: {alertThreshold: 0}}`,
			want: "spec.deadLetter.alertThreshold: Invalid value: 0: spec.deadLetter.alertThreshold in body should be greater than or equal to 1",
		},
		"less than no dead letters": {
			spec: `{deadLetter: {maxEntries: -1}}`,
			want: "spec.deadLetter.maxEntries: Invalid value: -1: spec.deadLetter.maxEntries in body should be greater than or equal to 0",
		},
		"retention without an age": {
			spec: `{retention: {}}`,
			want: "spec.retention.maxAge: Required value",
		},
		"messages dropped at once": {
			spec: `{retention: {maxAge: 1s}}`,
			want: `spec.retention.maxAge: Invalid value: "1s": maxAge must be a duration from 1m to 87600h`,
		},
		"an unknown deletion policy": {
			spec: `{deletionPolicy: Delete}`,
			want: `spec.deletionPolicy: Unsupported value: "Delete": supported values: "Retain", "Drain", "Purge"`,
		},
		"an unknown engine": {
			spec: `{broker: {engine: Kafka, urlSecretRef: {name: broker}}}`,
			want: `spec.broker.engine: Unsupported value: "Kafka": supported values: "NATS", "Asynq"`,
		},
		"a broker without address": {
			spec: `{broker: {engine: NATS}}`,
			want: "spec.broker.urlSecretRef: Required value",
		},
		"an address in the spec": {
			spec: `{broker: {engine: NATS, url: "nats://me:secret@nats:4222"}}`,
			want: `Queue in version "v1alpha1" cannot be handled as a Queue: strict decoding error: unknown field "spec.broker.url"`,
		},
		"credentials without the secret's name": {
			spec: `{broker: {engine: NATS, urlSecretRef: {name: broker}, credentialsSecretRef: {}}}`,
			want: "spec.broker.credentialsSecretRef.name: Required value",
		},
		"a text of any length in place of a short answer": {
			spec: `{lease: 1h1h1h1h1h1h1h1h1h}`,
			want: "spec.lease: Too long: may not be more than 16 bytes",
		},
	})
}

func TestWorkerPoolRules(t *testing.T) {
	// with is a good spec and what is wrong about it.
	with := func(more string) string {
		return `{queues: [{name: mail}], image: "registry.example/mail:1", replicas: 1, ` + more + `}`
	}
	scaled := func(more string) string {
		return `{queues: [{name: mail}], image: "registry.example/mail:1", autoscaling: {maxReplicas: 10, ` + more + `}}`
	}
	tryAll(t, "WorkerPool", map[string]badSpec{
		"nowhere to take work from": {
			spec: `{image: a, replicas: 1}`,
			want: "spec: Invalid value: set either queues or source",
		},
		"two places to take work from": {
			spec: with(`source: {redisList: {urlSecretRef: {name: redis}, key: mail}}`),
			want: "spec: Invalid value: set either queues or source",
		},
		"no queue": {
			spec: `{queues: [], image: a, replicas: 1}`,
			want: "spec.queues: Invalid value: 0: spec.queues in body should have at least 1 items",
		},
		"a queue twice": {
			spec: `{queues: [{name: mail}, {name: mail}], image: a, replicas: 1}`,
			want: `spec.queues[1]: Duplicate value: {"name":"mail"}`,
		},
		"a queue without weight": {
			spec: `{queues: [{name: mail, weight: 0}], image: a, replicas: 1}`,
			want: "spec.queues[0].weight: Invalid value: 0: spec.queues[0].weight in body should be greater than or equal to 1",
		},
		"a source that is two": {
			spec: `{source: {redisList: {urlSecretRef: {name: redis}, key: mail}, external: {address: "scaler:9000"}}, image: a, replicas: 1}`,
			want: "spec.source: Invalid value: exactly one of the fields in [redisList redisStream rabbitMQ prometheus external] must be set",
		},
		"a source that is none": {
			spec: `{source: {}, image: a, replicas: 1}`,
			want: "spec.source: Invalid value: exactly one of the fields in [redisList redisStream rabbitMQ prometheus external] must be set",
		},
		"a program without a port": {
			spec: `{source: {external: {address: scaler}}, image: a, replicas: 1}`,
			want: `spec.source.external.address: Invalid value: "scaler": spec.source.external.address in body should match '^[^/\s]+:[0-9]{1,5}$'`,
		},
		"no image": {
			spec: `{queues: [{name: mail}], replicas: 1}`,
			want: "spec.image: Invalid value: the worker has no image: set image, or the image of container worker in template",
		},
		"a worker without an image": {
			spec: `{queues: [{name: mail}], replicas: 1, template: {spec: {containers: [{name: worker}]}}}`,
			want: "spec.image: Invalid value: the worker has no image: set image, or the image of container worker in template",
		},
		"no container named worker": {
			spec: with(`template: {spec: {containers: [{name: main, image: a}]}}`),
			want: "spec.template.spec.containers: Invalid value: one of the containers must be named worker",
		},
		"workers that end": {
			spec: with(`template: {spec: {restartPolicy: OnFailure}}`),
			want: "spec.template.spec.restartPolicy: Invalid value: restartPolicy must be Always, because workers run until they are drained",
		},
		"a reserved variable": {
			spec: with(`env: [{name: YARDMASTER_POOL, value: mine}]`),
			want: "spec.env: Invalid value: names that begin with YARDMASTER_ are reserved",
		},
		"a reserved label in the template": {
			spec: with(`template: {metadata: {labels: {yardmaster.dev/pool: mine}}}`),
			want: "spec.template.metadata: Invalid value: labels and annotations under yardmaster.dev/ are reserved",
		},
		"a version that is no label": {
			spec: with(`version: "1.0 beta"`),
			want: `spec.version: Invalid value: "1.0 beta": spec.version in body should match '^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'`,
		},
		"no concurrency": {
			spec: with(`concurrency: 0`),
			want: "spec.concurrency: Invalid value: 0: spec.concurrency in body should be greater than or equal to 1",
		},
		"fewer in flight than handlers": {
			spec: with(`concurrency: 10, maxInFlight: 9`),
			want: "spec.maxInFlight: Invalid value: maxInFlight must not be less than concurrency, because some handlers would never get a message",
		},
		"neither replicas nor autoscaling": {
			spec: `{queues: [{name: mail}], image: a}`,
			want: "spec: Invalid value: set either replicas or autoscaling; to influence an autoscaled pool, change autoscaling.minReplicas or autoscaling.pausedUntil",
		},
		"replicas and autoscaling": {
			spec: with(`autoscaling: {maxReplicas: 3}`),
			want: "spec: Invalid value: set either replicas or autoscaling; to influence an autoscaled pool, change autoscaling.minReplicas or autoscaling.pausedUntil",
		},
		"fewer than no replicas": {
			spec: `{queues: [{name: mail}], image: a, replicas: -1}`,
			want: "[spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0, .spec.replicas: Invalid value: -1: should be a non-negative integer]",
		},
		"autoscaling without a bound": {
			spec: with(`autoscaling: {}`),
			want: "spec.autoscaling.maxReplicas: Required value",
		},
		"more at least than at most": {
			spec: scaled(`minReplicas: 11`),
			want: "spec.autoscaling.minReplicas: Invalid value: minReplicas must not be greater than maxReplicas",
		},
		"a fallback of more than at most": {
			spec: scaled(`fallback: {replicas: 11}`),
			want: "spec.autoscaling.fallback.replicas: Invalid value: fallback.replicas must not be greater than maxReplicas",
		},
		"a fallback without replicas": {
			spec: scaled(`fallback: {after: 1m}`),
			want: "spec.autoscaling.fallback.replicas: Required value",
		},
		"an objective of no time": {
			spec: scaled(`slo: {waitP95: 0s}`),
			want: `spec.autoscaling.slo.waitP95: Invalid value: "0s": waitP95 must be a duration from 1s to 24h`,
		},
		"a worker for no message": {
			spec: scaled(`backlogPerReplica: 0`),
			want: "spec.autoscaling.backlogPerReplica: Invalid value: 0: spec.autoscaling.backlogPerReplica in body should be greater than or equal to 1",
		},
		"workers that are never busy": {
			spec: scaled(`targetUtilizationPercent: 5`),
			want: "spec.autoscaling.targetUtilizationPercent: Invalid value: 5: spec.autoscaling.targetUtilizationPercent in body should be greater than or equal to 10",
		},
		"workers busier than always": {
			spec: scaled(`targetUtilizationPercent: 101`),
			want: "spec.autoscaling.targetUtilizationPercent: Invalid value: 101: spec.autoscaling.targetUtilizationPercent in body should be less than or equal to 100",
		},
		"a step of nothing": {
			spec: scaled(`scaleDown: {maxStep: 0}`),
			want: "spec.autoscaling.scaleDown.maxStep: Invalid value: 0: maxStep must be a number from 1 to 10000 or a percentage from 1% to 9999%",
		},
		"a step that is no percentage": {
			spec: scaled(`scaleDown: {maxStep: half}`),
			want: `spec.autoscaling.scaleDown.maxStep: Invalid value: "half": maxStep must be a number from 1 to 10000 or a percentage from 1% to 9999%`,
		},
		"a step of 0 %": {
			spec: scaled(`scaleUp: {maxStep: "0%"}`),
			want: `spec.autoscaling.scaleUp.maxStep: Invalid value: "0%": maxStep must be a number from 1 to 10000 or a percentage from 1% to 9999%`,
		},
		"a period of no time": {
			spec: scaled(`scaleDown: {period: 0s}`),
			want: `spec.autoscaling.scaleDown.period: Invalid value: "0s": period must be a duration from 1s to 1h`,
		},
		"a window of days": {
			spec: scaled(`scaleUp: {window: 48h}`),
			want: `spec.autoscaling.scaleUp.window: Invalid value: "48h": window must be a duration from 0s to 1h`,
		},
		"a pause until no time": {
			spec: scaled(`pausedUntil: tomorrow`),
			want: `spec.autoscaling.pausedUntil: Invalid value: "tomorrow": spec.autoscaling.pausedUntil in body must be of type date-time: "tomorrow"`,
		},
		"an unknown way to drain": {
			spec: with(`drain: {mode: Kill}`),
			want: `spec.drain.mode: Unsupported value: "Kill": supported values: "HTTP", "Sidecar", "Signal"`,
		},
		"no time to drain": {
			spec: with(`drain: {timeout: 0s}`),
			want: `spec.drain.timeout: Invalid value: "0s": timeout must be a duration from 1s to 24h`,
		},
		"a canary without steps": {
			spec: with(`rollout: {strategy: Canary}`),
			want: "spec.rollout.steps: Invalid value: steps are required with strategy Canary, and not allowed with other strategies",
		},
		"steps without a canary": {
			spec: with(`rollout: {steps: [{percent: 10}]}`),
			want: "spec.rollout.steps: Invalid value: steps are required with strategy Canary, and not allowed with other strategies",
		},
		"a canary that shrinks": {
			spec: with(`rollout: {strategy: Canary, steps: [{percent: 50}, {percent: 10}]}`),
			want: "spec.rollout.steps: Invalid value: the percentages of the steps must not decrease",
		},
		"a step of more than all": {
			spec: with(`rollout: {strategy: Canary, steps: [{percent: 101}]}`),
			want: "spec.rollout.steps[0].percent: Invalid value: 101: spec.rollout.steps[0].percent in body should be less than or equal to 100",
		},
		"an analysis without a canary": {
			spec: with(`rollout: {analysis: {minSamples: 5}}`),
			want: "spec.rollout.analysis: Invalid value: analysis requires strategy Canary",
		},
		"a rollout that can replace nothing": {
			spec: with(`rollout: {maxSurge: 0, maxUnavailable: "0%"}`),
			want: "spec.rollout.maxSurge: Invalid value: maxSurge and maxUnavailable must not both be 0, because no worker could be replaced",
		},
		"a surge that is no number": {
			spec: with(`rollout: {maxSurge: some}`),
			want: `spec.rollout.maxSurge: Invalid value: "some": maxSurge must be a number from 0 to 10000 or a percentage from 0% to 100%`,
		},
		"an unknown workload": {
			spec: with(`workload: DaemonSet`),
			want: `spec.workload: Unsupported value: "DaemonSet": supported values: "Deployment", "StatefulSet"`,
		},
		"an unknown preemption": {
			spec: with(`preemption: Kill`),
			want: `spec.preemption: Unsupported value: "Kill": supported values: "Never", "DrainLower"`,
		},
		"a disruption of more than all": {
			spec: with(`disruption: {maxUnavailable: "101%"}`),
			want: `spec.disruption.maxUnavailable: Invalid value: "101%": maxUnavailable must be a number from 0 to 10000 or a percentage from 0% to 100%`,
		},
		"replicas given to what is autoscaled": {
			spec: scaled(``), becomes: with(`autoscaling: {maxReplicas: 10}`),
			want: "spec: Invalid value: set either replicas or autoscaling; to influence an autoscaled pool, change autoscaling.minReplicas or autoscaling.pausedUntil",
		},
		"a misspelt field is not silently passed": {
			spec: with(`autoscale: {maxReplicas: 3}`),
			want: `WorkerPool in version "v1alpha1" cannot be handled as a WorkerPool: strict decoding error: unknown field "spec.autoscale"`,
		},
	})
}

func TestPolicyRules(t *testing.T) {
	tryAll(t, "Policy", map[string]badSpec{
		"a default first delay longer than any": {
			spec: `{defaults: {retry: {initialDelay: 2m, maxDelay: 1m}}}`,
			want: "spec.defaults.retry.initialDelay: Invalid value: initialDelay must not be longer than maxDelay",
		},
		"dead letters by default moved nowhere": {
			spec: `{defaults: {deadLetter: {onDelete: Move}}}`,
			want: "spec.defaults.deadLetter.moveTo: Invalid value: moveTo is needed with onDelete: Move, and only with it",
		},
		"a default rate without a limit": {
			spec: `{defaults: {rateLimit: {per: 1s}}}`,
			want: "spec.defaults.rateLimit.limit: Required value",
		},
		"a breaker that opens without failures": {
			spec: `{circuitBreaker: {failureThresholdPercent: 0}}`,
			want: "spec.circuitBreaker.failureThresholdPercent: Invalid value: 0: spec.circuitBreaker.failureThresholdPercent in body should be greater than or equal to 1",
		},
		"a breaker that never tries again": {
			spec: `{circuitBreaker: {halfOpenProbes: 0}}`,
			want: "spec.circuitBreaker.halfOpenProbes: Invalid value: 0: spec.circuitBreaker.halfOpenProbes in body should be greater than or equal to 1",
		},
		"a breaker that cools down for days": {
			spec: `{circuitBreaker: {cooldown: 48h}}`,
			want: `spec.circuitBreaker.cooldown: Invalid value: "48h": cooldown must be a duration from 1s to 1h`,
		},
		"more replicas for one pool than for all": {
			spec: `{limits: {maxReplicasTotal: 10, maxReplicasPerPool: 11}}`,
			want: "spec.limits.maxReplicasPerPool: Invalid value: maxReplicasPerPool must not be greater than maxReplicasTotal",
		},
		"no rate at all": {
			spec: `{limits: {maxRatePerQueue: 0}}`,
			want: "spec.limits.maxRatePerQueue: Invalid value: 0: spec.limits.maxRatePerQueue in body should be greater than or equal to 1",
		},
		"no image allowed": {
			spec: `{limits: {allowedImages: []}}`,
			want: "spec.limits.allowedImages: Invalid value: 0: spec.limits.allowedImages in body should have at least 1 items",
		},
		"an image allowed twice": {
			spec: `{limits: {allowedImages: [a, a]}}`,
			want: `spec.limits.allowedImages[1]: Duplicate value: "a"`,
		},
		"an image without a name": {
			spec: `{limits: {allowedImages: [""]}}`,
			want: `spec.limits.allowedImages[0]: Invalid value: "": spec.limits.allowedImages[0] in body should be at least 1 chars long`,
		},
		"a precedence over all that can ever be": {
			spec: `{precedence: 1001}`,
			want: "spec.precedence: Invalid value: 1001: spec.precedence in body should be less than or equal to 1000",
		},
		"a number of replicas that is less than no": {
			spec: `{limits: {maxReplicasTotal: -1}}`,
			want: "spec.limits.maxReplicasTotal: Invalid value: -1: spec.limits.maxReplicasTotal in body should be greater than or equal to 0",
		},
	})
}

func TestDefaultsOfQueues(t *testing.T) {
	waitForKinds(t)
	ns := namespace(t)
	object := given(t, "Queue", "mail", `{}`)
	object.SetNamespace(ns)
	unstructured.RemoveNestedField(object.Object, "spec")
	if err := cluster.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	queue := &v1alpha1.Queue{}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(object), queue); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.QueueSpec{
		Priorities:     []v1alpha1.QueuePriority{{Name: "default", Weight: 1}},
		Lease:          &v1alpha1.Duration{Duration: metav1.Duration{Duration: 30 * time.Second}},
		DeletionPolicy: v1alpha1.DeletionRetain,
		Drift:          v1alpha1.DriftCorrect,
	}
	if diff := cmp.Diff(want, queue.Spec); diff != "" {
		t.Errorf("the defaults differ (-want, +got):\n%s", diff)
	}
}

func TestDefaultsOfWorkerPools(t *testing.T) {
	waitForKinds(t)
	ns := namespace(t)
	object := given(t, "WorkerPool", "mail", `{queues: [{name: mail}], image: a, autoscaling: {maxReplicas: 3, fallback: {replicas: 1}}}`)
	object.SetNamespace(ns)
	if err := cluster.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	spec, _, err := unstructured.NestedMap(object.Object, "spec")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"queues":      []any{map[string]any{"name": "mail", "weight": int64(1)}},
		"image":       "a",
		"concurrency": int64(10),
		"autoscaling": map[string]any{
			"minReplicas": int64(0), "maxReplicas": int64(3), "targetUtilizationPercent": int64(80), "idleAfter": "60s",
			"slo":      map[string]any{"waitP95": "30s"},
			"fallback": map[string]any{"replicas": int64(1), "after": "60s"},
		},
		"rollout": map[string]any{
			"strategy": "Rolling", "maxSurge": "25%", "maxUnavailable": int64(0), "progressDeadline": "30m", "revisionHistory": int64(3),
		},
		"disruption": map[string]any{"maxUnavailable": int64(1)},
		"priority":   int64(0), "preemption": "Never", "workload": "Deployment",
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("the defaults differ (-want, +got):\n%s", diff)
	}
}

// A name that is told again, though it was the object's own all the time, changes nothing.
func TestQueueNameMayBeToldAgain(t *testing.T) {
	waitForKinds(t)
	ns := namespace(t)
	queue := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: ns}}
	if err := cluster.Create(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	// Not an update: the operator writes the status meanwhile.
	if err := cluster.Patch(t.Context(), queue, client.RawPatch(mergePatch, []byte(`{"spec":{"name":"mail"}}`))); err != nil {
		t.Error(err)
	}
}

func TestWorkerPoolsAreScaledByHandOnlyWithoutAutoscaling(t *testing.T) {
	waitForKinds(t)
	ns := namespace(t)
	scaleTo := func(name, spec string) error {
		object := given(t, "WorkerPool", name, spec)
		object.SetNamespace(ns)
		if err := cluster.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		scale := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": map[string]any{"replicas": int64(5)},
		}}
		return cluster.SubResource("scale").Patch(t.Context(), object, client.Merge, client.WithSubResourceBody(scale))
	}
	if err := scaleTo("manual", `{queues: [{name: mail}], image: a, replicas: 1}`); err != nil {
		t.Errorf("a pool with replicas cannot be scaled: %v", err)
	}
	pool := &v1alpha1.WorkerPool{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "manual"}, pool); err != nil {
		t.Fatal(err)
	}
	if pool.Spec.Replicas == nil || *pool.Spec.Replicas != 5 {
		t.Errorf("it has %v replicas, want 5", pool.Spec.Replicas)
	}
	if err := scaleTo("scaled", `{queues: [{name: mail}], image: a, autoscaling: {maxReplicas: 3}}`); err == nil {
		t.Error("an autoscaled pool lets itself be scaled by hand")
	}
}
