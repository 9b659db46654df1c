package integration

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// newManifest returns a manifest of the kind with that spec in YAML.
func newManifest(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %q}\nspec: %s\n", v1alpha1.GroupVersion, kind, name, spec)
	manifest, err := decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return manifest
}

// invalidSpec is a spec, or a change of a spec, that the API server rejects.
type invalidSpec struct {
	name string
	spec string
	// changedTo is the new spec, if the API server accepts spec and rejects the change.
	changedTo string
	want      string
}

// assertSpecsRefused applies each spec and compares the error of the API server.
func assertSpecsRefused(t *testing.T, kind string, specs map[string]invalidSpec) {
	t.Helper()
	shared := namespace(t) // nothing of the specs is stored, except before a change
	for title, bad := range specs {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			ns := shared
			if bad.changedTo != "" {
				ns = namespace(t)
			}
			strict := strictClient(t, &warningList{})
			if bad.name == "" {
				bad.name = "demo"
			}
			object := newManifest(t, kind, bad.name, bad.spec)
			object.SetNamespace(ns)
			err := apply(t.Context(), strict, object, false)
			if bad.changedTo != "" {
				require.NoError(t, err)
				object = newManifest(t, kind, bad.name, bad.changedTo)
				object.SetNamespace(ns)
				err = apply(t.Context(), strict, object, true)
			}
			if err == nil {
				t.Fatalf("the API server accepts the spec, want: %s", bad.want)
			}
			says := normalizeMessage(messageOf(err))
			if _, about, invalid := strings.Cut(says, "is invalid: "); invalid {
				says = about
			}
			if diff := gocmp.Diff(comparableMessage(t, bad.want), comparableMessage(t, says)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQueueRules(t *testing.T) {
	t.Parallel()
	assertSpecsRefused(t, "Queue", map[string]invalidSpec{
		"an invalid name on the broker": {spec: `{name: Mail}`, want: `spec.name: Invalid value: "Mail": spec.name in body should match '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'`},
		"an object name that is not a valid queue name": {
			name: "mail.eu", spec: `{}`,
			want: "spec.name: Invalid value: metadata.name is not a valid queue name (at most 63 lower-case letters, digits and dashes): set spec.name",
		},
		"a reserved name":        {spec: `{name: yardmaster-mail}`, want: "spec.name: Invalid value: name is reserved: names that start with yardmaster belong to the operator"},
		"a reserved object name": {name: "yardmaster", spec: `{}`, want: "spec.name: Invalid value: name is reserved: names that start with yardmaster belong to the operator"},
		"a changed name":         {spec: `{name: mail}`, changedTo: `{name: post}`, want: "spec.name: Invalid value: name is immutable: the broker stores the messages under it"},
		"a removed name":         {spec: `{name: mail}`, changedTo: `{}`, want: "spec.name: Invalid value: name is immutable: the broker stores the messages under it"},
		"settings of NATS on another engine": {
			spec: `{broker: {engine: Asynq, urlSecretRef: {name: redis}, nats: {jetStreamDomain: hub}}}`,
			want: "spec.broker.nats: Invalid value: nats has settings of the engine NATS: remove it, or use that engine",
		},
		"a domain with a wildcard": {
			spec: `{broker: {engine: NATS, urlSecretRef: {name: nats}, nats: {jetStreamDomain: "*"}}}`,
			want: `spec.broker.nats.jetStreamDomain: Invalid value: "*": spec.broker.nats.jetStreamDomain in body should match '^[-_A-Za-z0-9]+$'`,
		},
		"an inbox prefix that ends with a dot": {
			spec: `{broker: {engine: NATS, urlSecretRef: {name: nats}, nats: {inboxPrefix: a.}}}`,
			want: `spec.broker.nats.inboxPrefix: Invalid value: "a.": spec.broker.nats.inboxPrefix in body should match '^[-_A-Za-z0-9]+(\.[-_A-Za-z0-9]+)*$'`,
		},
		"Sentinels on another engine": {
			spec: `{broker: {engine: NATS, urlSecretRef: {name: nats}, sentinel: {masterName: main}}}`,
			want: "spec.broker.sentinel: Invalid value: sentinel finds a Redis server: remove it, or use the engine Asynq",
		},
		"a name of a master with a space": {
			spec: `{broker: {engine: Asynq, urlSecretRef: {name: redis}, sentinel: {masterName: my master}}}`,
			want: `spec.broker.sentinel.masterName: Invalid value: "my master": spec.broker.sentinel.masterName in body should match '^[-._A-Za-z0-9]+$'`,
		},
		"a priority name with upper-case letters": {
			spec: `{priorities: [{name: High}]}`,
			want: `spec.priorities[0].name: Invalid value: "High": spec.priorities[0].name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'`,
		},
		"equal weights with strictPriority": {
			spec: `{strictPriority: true, priorities: [{name: a, weight: 2}, {name: b, weight: 2}]}`,
			want: "spec.priorities: Invalid value: with strictPriority the weights define the order: each priority needs another weight",
		},
		"a rate limit per 0s":          {spec: `{rateLimit: {limit: 1, per: 0s}}`, want: `spec.rateLimit.per: Invalid value: "0s": per must be a duration from 1s to 24h`},
		"maxInFlight above maxBacklog": {spec: `{maxInFlight: 11, maxBacklog: 10}`, want: "spec.maxInFlight: Invalid value: maxInFlight must not be greater than maxBacklog"},
		"a lease above 1h":             {spec: `{lease: 61m}`, want: `spec.lease: Invalid value: "61m": lease must be a duration from 5s to 1h`},
		"a messageTimeout above 24h":   {spec: `{messageTimeout: 25h}`, want: `spec.messageTimeout: Invalid value: "25h": messageTimeout must be a duration from 1s to 24h`},
		"a lease in days":              {spec: `{lease: 1d}`, want: `spec.lease: Invalid value: "1d": lease must be a duration from 5s to 1h`},
		"a negative delay":             {spec: `{retry: {backoff: -1s}}`, want: `spec.retry.backoff: Invalid value: "-1s": backoff must be a duration from 0s to 24h`},
		"backoff above maxBackoff":     {spec: `{retry: {backoff: 2m, maxBackoff: 1m}}`, want: "spec.retry.backoff: Invalid value: backoff must not be longer than maxBackoff"},
		"a factor below 1":             {spec: `{retry: {factor: 0.9}}`, want: "spec.retry.factor: Invalid value: 0.9: factor must be from 1 to 10"},
		"onDelete Move without moveToRef": {
			spec: `{deadLetter: {onDelete: Move}}`,
			want: "spec.deadLetter.moveToRef: Invalid value: moveToRef is required with onDelete: Move, and not allowed otherwise",
		},
		"moveToRef is not a valid name": {
			spec: `{deadLetter: {onDelete: Move, moveToRef: {name: 0.0.0.0/0}}}`,
			want: `spec.deadLetter.moveToRef.name: Invalid value: "0.0.0.0/0": spec.deadLetter.moveToRef.name in body should match ` +
				`'^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'`,
		},
		"moveToRef the same Queue": {spec: `{deadLetter: {onDelete: Move, moveToRef: {name: demo}}}`, want: "spec.deadLetter.moveToRef: Invalid value: moveToRef must be another Queue"},
		"maxAge below 1m":          {spec: `{maxAge: 1s}`, want: `spec.maxAge: Invalid value: "1s": maxAge must be a duration from 1m to 87600h`},
		"retention of results below the lease": {
			spec: `{lease: 10m, results: {retention: 5m}}`,
			want: "spec.results.retention: Invalid value: retention must not be shorter than lease: a running job is reported several times in each lease",
		},
		"another type of storage": {
			spec: `{storage: {type: Memory}}`, changedTo: `{storage: {type: File}}`,
			want: "spec.storage.type: Invalid value: type is immutable: the broker cannot change where it stores a queue",
		},
		"a removed type of storage": {
			spec: `{storage: {type: Memory}}`, changedTo: `{storage: {replicas: 3}}`,
			want: "spec.storage.type: Invalid value: type is immutable: the broker cannot change where it stores a queue",
		},
		"a tag with a space": {
			spec: `{storage: {placement: {tags: ["a b"]}}}`,
			want: `spec.storage.placement.tags[0]: Invalid value: "a b": spec.storage.placement.tags[0] in body should match '^[!-~]+$'`,
		},
		"a name that no Secret can have": {
			spec: `{broker: {engine: NATS, urlSecretRef: {name: a/b}}}`,
			want: `spec.broker.urlSecretRef.name: Invalid value: "a/b": spec.broker.urlSecretRef.name in body should match '` + secretNamePattern + `'`,
		},
		"a URL in the spec": {
			spec: `{broker: {engine: NATS, url: "nats://me:secret@nats:4222"}}`,
			want: `Queue in version "v1alpha1" cannot be handled as a Queue: strict decoding error: unknown field "spec.broker.url"`,
		},
	})
}

// secretNamePattern is in the schema of each reference to a Secret.
const secretNamePattern = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`

func TestWorkerPoolRules(t *testing.T) {
	t.Parallel()
	// with returns a valid spec with one change.
	with := func(more string) string {
		return `{queues: [{name: mail}], image: "registry.example/mail:1", replicas: 1, ` + more + `}`
	}
	scaled := func(more string) string {
		return `{queues: [{name: mail}], image: "registry.example/mail:1", autoscaling: {maxReplicas: 10, ` + more + `}}`
	}
	assertSpecsRefused(t, "WorkerPool", map[string]invalidSpec{
		"neither queues nor source": {spec: `{image: a, replicas: 1}`, want: "spec: Invalid value: set either queues or source"},
		"both queues and source":    {spec: with(`source: {redis: {urlSecretRef: {name: redis}, key: mail}}`), want: "spec: Invalid value: set either queues or source"},
		"a source of two types": {
			spec: `{source: {redis: {urlSecretRef: {name: redis}, key: mail}, external: {address: "scaler:9000"}}, image: a, replicas: 1}`,
			want: "spec.source: Invalid value: exactly one of the fields in [redis rabbitMQ natsJetStream prometheus external] must be set",
		},
		"a source with a name that no Secret can have": {
			spec: `{source: {redis: {urlSecretRef: {name: UPPER}, key: mail}}, image: a, replicas: 1}`,
			want: `spec.source.redis.urlSecretRef.name: Invalid value: "UPPER": spec.source.redis.urlSecretRef.name in body should match '` + secretNamePattern + `'`,
		},
		"a consumer of a stream whose name is a subject": {
			spec: `{source: {natsJetStream: {urlSecretRef: {name: nats}, stream: orders.new, consumer: billing}}, image: a, replicas: 1}`,
			want: `spec.source.natsJetStream.stream: Invalid value: "orders.new": spec.source.natsJetStream.stream in body should match '^[^\s.*>/\\]+$'`,
		},
		"an external source without a port": {
			spec: `{source: {external: {address: scaler}}, image: a, replicas: 1}`,
			want: `spec.source.external.address: Invalid value: "scaler": spec.source.external.address in body should match '^[^/\s]+:[0-9]{1,5}$'`,
		},
		"no image": {spec: `{queues: [{name: mail}], replicas: 1}`, want: "spec.image: Invalid value: the worker has no image: set image, or the image of container worker in template"},
		"no container named worker": {
			spec: with(`template: {spec: {containers: [{name: main, image: a}]}}`),
			want: "spec.template.spec.containers: Invalid value: one of the containers must be named worker",
		},
		"more containers than the memory of the operator allows": {
			spec: with(`template: {spec: {containers: [{name: worker, image: a}], initContainers: [` + containers(65) + `]}}`),
			want: "spec.template.spec: Invalid value: a template may have at most 64 containers of each type, and 256 of each other list",
		},
		"a restartPolicy other than Always": {
			spec: with(`template: {spec: {restartPolicy: OnFailure}}`),
			want: "spec.template.spec.restartPolicy: Invalid value: restartPolicy must be Always, because workers run until they are drained",
		},
		"a reserved label in the template": {
			spec: with(`template: {metadata: {labels: {yardmaster.dev/pool: mine}}}`),
			want: "spec.template.metadata: Invalid value: labels and annotations under yardmaster.dev/ are reserved",
		},
		"a version that is not a label value": {
			spec: with(`version: "1.0 beta"`),
			want: `spec.version: Invalid value: "1.0 beta": spec.version in body should match '^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'`,
		},
		"maxInFlight below concurrency": {
			spec: with(`concurrency: 10, maxInFlight: 9`),
			want: "spec.maxInFlight: Invalid value: maxInFlight must not be less than concurrency, because some handlers would never get a message",
		},
		"replicas and autoscaling": {
			spec: scaled(`}, replicas: 2, rollout: {`),
			want: "spec: Invalid value: set either replicas or autoscaling; to influence an autoscaled pool, change autoscaling.minReplicas, autoscaling.maxReplicas or autoscaling.suspend",
		},
		"minReplicas above maxReplicas": {spec: scaled(`minReplicas: 11`), want: "spec.autoscaling.minReplicas: Invalid value: minReplicas must not be greater than maxReplicas"},
		"fallback replicas above maxReplicas": {
			spec: scaled(`fallback: {replicas: 11}`),
			want: "spec.autoscaling.fallback.replicas: Invalid value: fallback.replicas must not be greater than maxReplicas",
		},
		"an SLO of 0s": {spec: scaled(`waitP95: 0s`), want: `spec.autoscaling.waitP95: Invalid value: "0s": waitP95 must be a duration from 1s to 24h`},
		"maxStep of 0%": {
			spec: scaled(`scaleUp: {maxStep: "0%"}`),
			want: `spec.autoscaling.scaleUp.maxStep: Invalid value: "0%": maxStep must be a number from 1 to 10000 or a percentage from 1% to 9999%`,
		},
		"a period of 0s": {spec: scaled(`scaleDown: {period: 0s}`), want: `spec.autoscaling.scaleDown.period: Invalid value: "0s": period must be a duration from 1s to 1h`},
		"a canary without steps": {
			spec: with(`rollout: {strategy: Canary}`),
			want: "spec.rollout.steps: Invalid value: steps are required with strategy Canary, and not allowed with other strategies",
		},
		"decreasing canary steps": {
			spec: with(`rollout: {strategy: Canary, steps: [{percent: 50}, {percent: 10}]}`),
			want: "spec.rollout.steps: Invalid value: the percentages of the steps must not decrease",
		},
		"an analysis without a canary": {spec: with(`rollout: {analysis: {minSamples: 5}}`), want: "spec.rollout.analysis: Invalid value: analysis requires strategy Canary"},
		"maxSurge and maxUnavailable of 0": {
			spec: with(`rollout: {maxSurge: 0, maxUnavailable: "0%"}`),
			want: "spec.rollout.maxSurge: Invalid value: maxSurge and maxUnavailable must not both be 0, because no worker could be replaced",
		},
		"an invalid maxSurge": {
			spec: with(`rollout: {maxSurge: some}`),
			want: `spec.rollout.maxSurge: Invalid value: "some": maxSurge must be a number from 0 to 10000 or a percentage from 0% to 100%`,
		},
		"a disruption budget above 100%": {
			spec: with(`disruption: {maxUnavailable: "101%"}`),
			want: `spec.disruption.maxUnavailable: Invalid value: "101%": maxUnavailable must be a number from 0 to 10000 or a percentage from 0% to 100%`,
		},
	})
}

func TestPolicyRules(t *testing.T) {
	t.Parallel()
	assertSpecsRefused(t, "Policy", map[string]invalidSpec{
		"a default backoff above maxBackoff": {
			spec: `{defaults: {retry: {backoff: 2m, maxBackoff: 1m}}}`,
			want: "spec.defaults.retry.backoff: Invalid value: backoff must not be longer than maxBackoff",
		},
		"a default broker with a name that no Secret can have": {
			spec: `{defaults: {broker: {engine: NATS, urlSecretRef: {name: ".."}}}}`,
			want: `spec.defaults.broker.urlSecretRef.name: Invalid value: "..": spec.defaults.broker.urlSecretRef.name in body should match '` + secretNamePattern + `'`,
		},
		"a default onDelete Move without moveToRef": {
			spec: `{defaults: {deadLetter: {onDelete: Move}}}`,
			want: "spec.defaults.deadLetter.moveToRef: Invalid value: moveToRef is required with onDelete: Move, and not allowed otherwise",
		},
		"a circuit breaker cooldown above 1h": {
			spec: `{defaults: {circuitBreaker: {cooldown: 48h}}}`,
			want: `spec.defaults.circuitBreaker.cooldown: Invalid value: "48h": cooldown must be a duration from 1s to 1h`,
		},
		"more replicas per pool than in total": {
			spec: `{limits: {maxReplicasTotal: 10, maxReplicasPerPool: 11}}`,
			want: "spec.limits.maxReplicasPerPool: Invalid value: maxReplicasPerPool must not be greater than maxReplicasTotal",
		},
	})
}

func TestStorageOfAQueueCanChangeExceptItsType(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	for i, spec := range []string{
		`{}`, `{storage: {}}`, `{storage: {type: File}}`, `{storage: {replicas: 3}}`,
		`{storage: {replicas: 5, placement: {cluster: eu, tags: ["disk:fast", "!old"]}}}`, `{storage: {replicas: 1, placement: {}}}`, `{}`,
	} {
		object := newManifest(t, "Queue", "mail", spec)
		object.SetNamespace(ns)
		if err := apply(t.Context(), strictClient(t, &warningList{}), object, i > 0); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestDefaultsOfFields(t *testing.T) {
	t.Parallel()
	ns := namespaceWithoutWebhook(t)
	for kind, row := range map[string]struct {
		spec string // empty if the object has none
		want map[string]any
	}{
		"Queue": {"", map[string]any{
			"priorities": []any{map[string]any{"name": "default", "weight": int64(1)}}, "lease": "30s", "deletionPolicy": "Retain", "drift": "Correct",
		}},
		"WorkerPool": {`{queues: [{name: mail}], image: a, autoscaling: {maxReplicas: 3, fallback: {replicas: 1}}}`, map[string]any{
			"queues":      []any{map[string]any{"name": "mail", "weight": int64(1)}},
			"image":       "a",
			"concurrency": int64(10), "replicas": int64(1),
			"autoscaling": map[string]any{
				"minReplicas": int64(0), "maxReplicas": int64(3), "idleAfter": "60s",
				"waitP95":  "30s",
				"fallback": map[string]any{"replicas": int64(1), "after": "60s"},
			},
			"rollout": map[string]any{
				"strategy": "Rolling", "maxSurge": "25%", "maxUnavailable": int64(0), "progressDeadline": "30m", "revisionHistory": int64(3),
			},
			"disruption": map[string]any{"maxUnavailable": int64(1)},
			"priority":   int64(0), "preemption": "Never", "workload": "Deployment", "networkPolicy": "Managed",
		}},
		"AgenticSession": {`{prompt: a, repos: [{url: "https://a/b"}], workspace: {}, retry: {}}`, map[string]any{
			"prompt": "a", "interactive": false, "runner": "default", "repos": []any{map[string]any{"url": "https://a/b"}},
			"workspace": map[string]any{"retention": "Delete", "onLost": "Fail"}, "retry": map[string]any{},
		}},
	} {
		object := newManifest(t, kind, "demo", cmp.Or(row.spec, "{}"))
		object.SetNamespace(ns)
		if row.spec == "" {
			unstructured.RemoveNestedField(object.Object, "spec")
		}
		mustCreate(t, object)
		if diff := gocmp.Diff(row.want, object.Object["spec"]); diff != "" {
			t.Errorf("the defaults of %s differ (-want, +got):\n%s", kind, diff)
		}
	}
}

func TestScaleSubresourceIsRefusedWithAutoscaling(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	scaleTo := func(name, spec string) error {
		object := newManifest(t, "WorkerPool", name, spec)
		object.SetNamespace(ns)
		mustCreate(t, object)
		scale := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": map[string]any{"replicas": int64(5)},
		}}
		return cluster.SubResource("scale").Patch(t.Context(), object, client.Merge, client.WithSubResourceBody(scale))
	}
	if err := scaleTo("manual", `{queues: [{name: mail}], image: a, replicas: 1}`); err != nil {
		t.Errorf("a pool with replicas cannot be scaled: %v", err)
	}
	pool := &v1alpha1.WorkerPool{}
	mustGet(t, client.ObjectKey{Namespace: ns, Name: "manual"}, pool)
	if pool.Spec.Replicas == nil || *pool.Spec.Replicas != 5 {
		t.Errorf("the pool has %v replicas, want 5", pool.Spec.Replicas)
	}
	err := scaleTo("scaled", `{queues: [{name: mail}], image: a, autoscaling: {maxReplicas: 3}}`)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "to influence an autoscaled pool, change autoscaling.minReplicas") {
		t.Errorf("the scale subresource of an autoscaled pool returns %v", err)
	}
}

// containers returns containers with different names.
func containers(number int) string {
	var list []string
	for i := range number {
		list = append(list, fmt.Sprintf("{name: c%d}", i))
	}
	return strings.Join(list, ", ")
}
