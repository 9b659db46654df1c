package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap/zapcore"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	jobreportcontroller "github.com/yardmaster/yardmaster/internal/kinds/jobreport/controller"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/flagenv"
	"github.com/yardmaster/yardmaster/test/require"
)

func environmentOf(variables map[string]string) []string {
	environment := []string{"PATH=/usr/bin", "HOME="}
	for name, value := range variables {
		environment = append(environment, name+"="+value)
	}
	return environment
}

// optionsSummary contains the options that the rows compare.
type optionsSummary struct {
	Controllers, Namespaces []string
	Concurrency             int
	KubeAPIQPS              float64
	LeaderElection          LeaderElectionOptions
	Metrics                 MetricsOptions
	Webhook                 bool
	Report                  jobreportcontroller.Options
	Broker                  brokeraccess.DefaultBroker
	BrokerNetwork           bounded.Options
	QueueSweep              time.Duration
}

func defaultSummary() optionsSummary {
	return optionsSummary{
		Controllers: []string{"sequentialjob", "queue", "workerpool", "policy", "agenticsession", "egressproxy", "schedule"},
		Concurrency: 10,
		KubeAPIQPS:  -1,
		LeaderElection: LeaderElectionOptions{
			Enabled: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		},
		Metrics:    MetricsOptions{Address: ":8443", Secure: true},
		Webhook:    true,
		Report:     jobreportcontroller.Options{Interval: 5 * time.Minute, MaxFindings: 50, Thresholds: jobreport.DefaultThresholds()},
		Broker:     brokeraccess.DefaultBroker{Engine: "NATS"},
		QueueSweep: 2 * time.Minute,
	}
}

func TestParseFlags(t *testing.T) {
	for name, row := range map[string]struct {
		args        string
		environment map[string]string
		want        func(*optionsSummary)
	}{
		"no flags":                                     {want: func(*optionsSummary) {}},
		"namespaces are sorted and deduplicated":       {args: "--namespaces=b,a,,b", want: func(s *optionsSummary) { s.Namespaces = []string{"a", "b"} }},
		"the environment sets omitted flags":           {environment: map[string]string{"YARDMASTER_KUBE_API_QPS": "50", "YARDMASTER_LEADER_ELECT": "false"}, want: func(s *optionsSummary) { s.KubeAPIQPS, s.LeaderElection.Enabled = 50, false }},
		"a flag takes precedence over the environment": {args: "--concurrency=3", environment: map[string]string{"YARDMASTER_CONCURRENCY": "7"}, want: func(s *optionsSummary) { s.Concurrency = 3 }},
		"an empty variable is a value":                 {environment: map[string]string{"YARDMASTER_NAMESPACES": ""}, want: func(*optionsSummary) {}},
		"booleans are disabled":                        {args: "--webhook=false --metrics-secure=false --metrics-bind-address=0", want: func(s *optionsSummary) { s.Webhook, s.Metrics = false, MetricsOptions{Address: "0"} }},
		"report namespaces enable jobreport": {
			args: "--report-namespaces=b,a,b --report-interval=30s --report-top=7",
			want: func(s *optionsSummary) {
				s.Controllers = []string{"sequentialjob", "queue", "workerpool", "policy", "agenticsession", "egressproxy", "schedule", "jobreport"}
				s.Report.Namespaces, s.Report.Interval, s.Report.MaxFindings = []string{"a", "b"}, 30*time.Second, 7
			},
		},
		"only jobreport": {args: "--controllers=jobreport --report-namespaces=a", want: func(s *optionsSummary) { s.Controllers, s.Report.Namespaces = []string{"jobreport"}, []string{"a"} }},
		"a default broker": {
			args:        "--broker-url-secret=nats/address --broker-tls-secret=nats-tls --broker-jetstream-domain=hub --broker-inbox-prefix=_INBOX_a --queue-sweep=30s",
			environment: map[string]string{"YARDMASTER_BROKER_CREDENTIALS_SECRET": "nats-login"},
			want: func(s *optionsSummary) {
				s.Broker = brokeraccess.DefaultBroker{
					Engine: "NATS", URLSecret: "nats/address", TLSSecret: "nats-tls", CredentialsSecret: "nats-login",
					NATS: v1alpha1.NATSConnection{JetStreamDomain: "hub", InboxPrefix: "_INBOX_a"},
				}
				s.QueueSweep = 30 * time.Second
			},
		},
		"a default broker with Sentinels": {
			args: "--broker-url-secret=redis --broker-engine=Asynq --broker-sentinel-master=main --broker-sentinel-credentials-secret=login",
			want: func(s *optionsSummary) {
				s.Broker = brokeraccess.DefaultBroker{Engine: "Asynq", URLSecret: "redis", SentinelMaster: "main", SentinelSecret: "login"}
			},
		},
		"networks of brokers": {
			args:        "--deny-cidrs=10.0.0.0/8,fd00::/8 --deny-cidrs=192.0.2.1/32",
			environment: map[string]string{"YARDMASTER_ALLOW_LOCAL_BROKERS": "true"},
			want: func(s *optionsSummary) {
				s.BrokerNetwork = bounded.Options{AllowLocal: true, Deny: []netip.Prefix{
					netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("192.0.2.1/32"),
				}}
			},
		},
		"OpenReports": {environment: map[string]string{"YARDMASTER_REPORT_OPENREPORTS": "true"}, want: func(s *optionsSummary) { s.Report.OpenReports = true }},
		"thresholds from flags and the environment": {
			args:        "--report-never-started-suspicious-after=5s",
			environment: map[string]string{"YARDMASTER_REPORT_NEVER_STARTED_ZOMBIE_AFTER": "0s"},
			want: func(s *optionsSummary) {
				*s.Report.Thresholds[jobreport.ReasonNeverStarted] = jobreport.Threshold{Suspicious: 5 * time.Second}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			options := require.Call(ParseFlags(strings.Fields(row.args), environmentOf(row.environment), io.Discard)).Succeeds(t)
			want := defaultSummary()
			row.want(&want)
			got := optionsSummary{
				controllerNames(options.Controllers), options.Namespaces, options.Concurrency, options.KubeAPIQPS,
				options.LeaderElection, options.Metrics, options.Webhook.Enabled,
				options.Report, options.Broker, options.BrokerNetwork, options.QueueSweep,
			}
			require.Equal(t, want, got, cmpopts.EquateComparable(netip.Prefix{}))
		})
	}
}

func TestParseFlagsRejectsInvalidFlags(t *testing.T) {
	for name, row := range map[string]struct {
		args        string
		environment map[string]string
		want        string
	}{
		"an argument that is not a flag":              {args: "start", want: `unexpected argument "start"`},
		"an unknown flag":                             {args: "--speed=9", want: "not defined: -speed"},
		"an unknown controller":                       {args: "--controllers=cron", want: `unknown controller "cron"`},
		"jobreport without namespaces":                {args: "--controllers=jobreport", want: "jobreport, which needs --report-namespaces"},
		"no controller left":                          {args: "--controllers=*,-sequentialjob,-queue,-workerpool,-policy,-agenticsession,-egressproxy,-schedule", want: "leaves no controller to run"},
		"a scan interval of 0":                        {args: "--report-interval=0s", want: "--report-interval is 0s, must be at least 1s"},
		"too many findings":                           {args: "--report-top=501", want: "must be between 0 and 500"},
		"a negative threshold":                        {args: "--report-no-ready-pods-zombie-after=-1h", want: "no-ready-pods-zombie-after is -1h0m0s, must not be negative"},
		"a concurrency of 0":                          {args: "--concurrency=0", want: "must be at least 1"},
		"an unknown engine":                           {args: "--broker-engine=Kafka", want: `--broker-engine is "Kafka", must be one of NATS, Asynq`},
		"credentials without a broker URL":            {args: "--broker-credentials-secret=login", want: "need --broker-url-secret"},
		"a domain on the engine Asynq":                {args: "--broker-url-secret=redis --broker-engine=Asynq --broker-jetstream-domain=hub", want: "and the engine NATS"},
		"Sentinels on the engine NATS":                {args: "--broker-url-secret=nats --broker-sentinel-master=main", want: "and the engine Asynq"},
		"a login at no Sentinels":                     {args: "--broker-sentinel-credentials-secret=login", want: "needs --broker-sentinel-master"},
		"a cluster with all public addresses":         {args: "--cluster-cidrs=203.0.113.0/24,0.0.0.0/0", want: "0.0.0.0/0 has all public addresses"},
		"an address instead of a network":             {args: "--deny-cidrs=10.0.0.1/8", want: `"10.0.0.1/8" is not a network`},
		"a namespace of Kubernetes":                   {args: "--namespaces=team-a,kube-system", want: "does not work in namespace kube-system"},
		"reports on a namespace of Kubernetes":        {args: "--report-namespaces=kube-public", want: "does not work in namespace kube-public"},
		"a sweep interval of 0":                       {args: "--queue-sweep=0s", want: "--queue-sweep is 0s, must be at least 1s"},
		"a misspelled variable":                       {environment: map[string]string{"YARDMASTER_DENY_CIDR": "10.0.0.0/8"}, want: "YARDMASTER_DENY_CIDR is set, but there is no flag --deny-cidr"},
		"a misspelled variable beside the right flag": {args: "--deny-cidrs=10.0.0.0/8", environment: map[string]string{"YARDMASTER_DENY_CIDR": "10.0.0.0/8"}, want: "YARDMASTER_DENY_CIDR is set, but there is no flag --deny-cidr"},
		"an invalid boolean in the environment":       {environment: map[string]string{"YARDMASTER_WEBHOOK": "perhaps"}, want: `invalid value "perhaps" of YARDMASTER_WEBHOOK`},
		"an invalid boolean for OpenReports":          {environment: map[string]string{"YARDMASTER_REPORT_OPENREPORTS": "perhaps"}, want: `invalid value "perhaps" of YARDMASTER_REPORT_OPENREPORTS`},
		"a lease that expires before it is renewed":   {args: "--leader-election-lease-duration=5s", want: "must be longer than --leader-election-renew-deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseFlags(strings.Fields(row.args), environmentOf(row.environment), io.Discard)
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestOperatorNamespaceIsDetected(t *testing.T) {
	for name, row := range map[string]struct{ args, want string }{
		"the Lease is in the operator's namespace":                                   {"--operator-namespace=a", `"a" <nil>`},
		"the Lease is in another namespace":                                          {"--operator-namespace=a --leader-election-namespace=b", `"b" <nil>`},
		"in a namespace of Kubernetes":                                               {"--operator-namespace=kube-system", "does not work in namespace kube-system"},
		"outside a cluster, without leader election and webhooks":                    {"--leader-elect=false --webhook=false", `"" <nil>`},
		"outside a cluster, the namespace of the Service of the webhooks is unknown": {"--leader-elect=false", "--operator-namespace must be given"},
		"outside a cluster, the namespace of the Lease is unknown":                   {"--webhook=false", "--leader-election-namespace must be given"},
	} {
		t.Run(name, func(t *testing.T) {
			options := require.Call(ParseFlags(strings.Fields(row.args), environmentOf(nil), io.Discard)).Succeeds(t)
			err := options.detectNamespaces()
			require.Contains(t, fmt.Sprintf("%q %v", options.LeaderElection.Namespace, err), row.want)
		})
	}
}

func knownControllers() []Controller {
	group := schema.GroupVersion{Group: "yard.example", Version: "v1"}
	return []Controller{{Name: "crane", Kind: group.WithKind("Crane")}, {Name: "switch", Kind: group.WithKind("Switch")}}
}

func TestSelectControllers(t *testing.T) {
	for selectors, want := range map[string][]string{
		"*":              {"crane", "switch"},
		"crane":          {"crane"},
		"*,-switch":      {"crane"},
		"-switch,*":      {"crane"},
		"switch,crane":   {"crane", "switch"},
		"switch,-switch": {"switch"},
	} {
		t.Run(selectors, func(t *testing.T) {
			selected := require.Call(SelectControllers(knownControllers(), flagenv.SplitList(selectors))).Succeeds(t)
			require.Equal(t, want, controllerNames(selected))
		})
	}
}

func TestMissingCustomResourceDefinitionsAreReported(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	crane, other := knownControllers()[0], knownControllers()[1]
	mapper.Add(crane.Kind, meta.RESTScopeNamespace)
	watching := crane
	watching.Needs = []schema.GroupVersionKind{other.Kind}
	const missing = " needs the CustomResourceDefinition of Switch.yard.example, which is not installed"
	for title, row := range map[string]struct {
		controllers []Controller
		want        string
	}{
		"everything is installed":        {[]Controller{crane}, "<nil>"},
		"the kind of a controller":       {[]Controller{crane, other}, "controller switch" + missing},
		"a kind that a controller needs": {[]Controller{watching}, "controller crane" + missing},
	} {
		t.Run(title, func(t *testing.T) {
			require.Contains(t, fmt.Sprint(checkInstalled(mapper, row.controllers)), row.want)
		})
	}
}

func TestOperatorRefusesToRunWhereNothingRecordsTheCreatorsOfSessions(t *testing.T) {
	without, with := meta.NewDefaultRESTMapper(nil), meta.NewDefaultRESTMapper(nil)
	without.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), meta.RESTScopeRoot)
	without.Add(admissionregistrationv1beta1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), meta.RESTScopeRoot)
	with.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), meta.RESTScopeRoot)
	sessions := []Controller{{Name: "queue"}, {Name: "agenticsession", Mutates: true}}
	for name, test := range map[string]struct {
		mapper  meta.RESTMapper
		options Options
		refused bool
	}{
		"with the webhook":                       {mapper: without, options: Options{Webhook: WebhookOptions{Enabled: true, Mutating: true}, Controllers: sessions}},
		"with the policy":                        {mapper: with, options: Options{Webhook: WebhookOptions{Enabled: true}, Controllers: sessions}},
		"with neither":                           {mapper: without, options: Options{Webhook: WebhookOptions{Enabled: true}, Controllers: sessions}, refused: true},
		"with neither, and without sessions":     {mapper: without, options: Options{Webhook: WebhookOptions{Enabled: true}, Controllers: sessions[:1]}},
		"without any webhook, as in development": {mapper: without, options: Options{Controllers: sessions}},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkCreatorsAreRecorded(test.mapper, test.options)
			require.True(t, (err != nil) == test.refused, "error %v, refused should be %t", err, test.refused)
		})
	}
}

func TestSidecarsAndProxiesRunTheImageOfTheOperatorsPod(t *testing.T) {
	pod := func(name, container string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: name}}
		pod.Spec.Containers = []corev1.Container{{Name: "injected", Image: "mesh:v1"}, {Name: container, Image: "a@sha256:1"}}
		return pod
	}
	reader := fake.NewClientBuilder().WithObjects(pod("right", "yardmaster"), pod("renamed", "other")).Build()
	for name, want := range map[string]string{"right": "a@sha256:1 ", "renamed": "no container yardmaster", "missing": "not found"} {
		image, err := imageOfPod(t.Context(), reader, client.ObjectKey{Namespace: "platform", Name: name})
		require.Contains(t, fmt.Sprint(image, " ", err), want)
	}
}

func TestAnErrorInTheLogIsForSomebody(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	conflict := apierrors.NewConflict(jobs, "a", errors.New("the object has been modified"))
	forbidden := apierrors.NewForbidden(jobs, "a", errors.New("no RBAC policy matched"))
	terminating := apierrors.NewForbidden(jobs, "a", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	refused := errors.New("dial tcp 127.0.0.1:6443: connect: connection refused")
	for title, row := range map[string]struct {
		err       error
		message   string
		isStopped bool
		want      string
	}{
		"a conflict":                                 {fmt.Errorf("writing the status: %w", conflict), "Reconciler error", false, "debug"},
		"an outdated object":                         {kube.ErrStale, "Reconciler error", false, "debug"},
		"an event in a terminating namespace":        {terminating, "Server rejected event (will not retry!)", false, "debug"},
		"a request that was given up":                {context.Canceled, "Reconciler error", false, "debug"},
		"several that need nobody":                   {errors.Join(conflict, context.Canceled), "Reconciler error", false, "debug"},
		"an API server that does not answer a watch": {refused, "Failed to watch", false, "debug"},
		"a failure at the end of the process":        {refused, "Reconciler error", true, "debug"},
		"an API server that does not answer":         {refused, "Reconciler error", false, "error"},
		"a missing permission":                       {forbidden, "Reconciler error", false, "error"},
		"a missing permission to watch":              {forbidden, "Failed to watch", false, "error"},
		"several of which one needs somebody":        {errors.Join(conflict, forbidden), "Reconciler error", false, "error"},
		"an error without a cause":                   {nil, "No session starts", false, "error"},
	} {
		t.Run(title, func(t *testing.T) {
			var output bytes.Buffer
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if row.isStopped {
				stop()
			}
			options := logOptions()
			options.Level = zapcore.DebugLevel
			logger := logr.New(sink{zap.New(zap.UseFlagOptions(&options), zap.WriteTo(&output)).GetSink(), ctx.Done()})
			logger.WithName("a").WithValues("b", 1).Error(row.err, row.message)
			var line struct{ Level, Msg, Stacktrace string }
			err := json.Unmarshal(output.Bytes(), &line)
			require.True(t, err == nil && line.Level == row.want && line.Msg == row.message && line.Stacktrace == "", "%v: %s", err, output.String())
		})
	}
}
