package operator

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	jobreportcontroller "github.com/yardmaster/yardmaster/internal/kinds/jobreport/controller"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/flagenv"
	"github.com/yardmaster/yardmaster/internal/version"
)

// Options are the values of the operator's flags.
type Options struct {
	// Controllers to run.
	Controllers []Controller
	// Namespaces to watch; all if empty.
	Namespaces []string
	// Concurrency is the number of concurrent reconciliations of a kind.
	Concurrency int
	// OperatorNamespace has the operator's Lease and Secret.
	OperatorNamespace string
	// OperatorPod is the name of the operator's Pod, from which it reads WorkerImage if no flag sets it.
	OperatorPod string

	KubeAPIQPS   float64
	KubeAPIBurst int

	LeaderElection LeaderElectionOptions
	Metrics        MetricsOptions
	Webhook        WebhookOptions

	// Report configures the controller jobreport.
	Report jobreportcontroller.Options

	// Broker for Queues without a broker.
	Broker brokeraccess.DefaultBroker
	// BrokerNetwork restricts the addresses of brokers and backlog sources.
	BrokerNetwork bounded.Options
	// WorkerImage is the image of the sidecar for drain mode Sidecar, of egress proxies, network checks and archives of logs, with
	// the program yardmaster. If empty, they are refused or left out.
	WorkerImage string
	// WorkerAdminSecret is the name of the Secret with the key with which the operator signs requests to workers, and the tokens of
	// sessions. If empty, they are not signed.
	WorkerAdminSecret string
	// SessionNetwork has the properties of the cluster's network, for the NetworkPolicies of sessions.
	SessionNetwork agenticsession.NetworkSettings
	// NetworkCheckService is the Service of the operator through which sessions check whether NetworkPolicies are enforced. Without
	// it or WorkerImage, sessions do not check.
	NetworkCheckService string
	// SessionPolicies are the names of the ValidatingAdmissionPolicies without which no session starts.
	SessionPolicies []string
	// ApprovalPolicies are the names of the ValidatingAdmissionPolicies without which no approval of a step counts.
	ApprovalPolicies []string
	// QueueSweep is the time between two comparisons of an unchanged Queue with its broker; 0: the controller's default.
	QueueSweep time.Duration
	// ClusterID identifies the cluster on brokers; empty: the UID of the namespace kube-system does.
	ClusterID     string
	brokerManager func() (*brokerconn.Manager, error)
	// admissionPolicies returns the policies of SessionPolicies.
	admissionPolicies func() (*kube.AdmissionPolicies, error)
	dialer            *bounded.Dialer

	HealthAddress string
	PprofAddress  string
	Log           zap.Options
}

// LeaderElectionOptions configures leader election.
type LeaderElectionOptions struct {
	Enabled       bool
	Namespace     string
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
}

// MetricsOptions configures how metrics are served.
type MetricsOptions struct {
	Address string
	Secure  bool
	// OmitObjectNames leaves the names of objects out of labels.
	OmitObjectNames bool
}

// WebhookOptions configures how the webhooks are served.
type WebhookOptions struct {
	Enabled bool
	// Mutating serves the webhook that records the creator of a session.
	Mutating bool
	Port     int
	CertDir  string
	// ClientCAFile has the authorities of the API server's client certificate.
	ClientCAFile string
	// Service is the name of the Service for which the operator issues certificates.
	Service string
}

// ErrVersionRequested is returned after --version has printed the version.
var ErrVersionRequested = errors.New("version requested")

// ParseFlags reads the flags in args. Other flags are read from the environment, which has the form of
// os.Environ: --kube-api-qps from YARDMASTER_KUBE_API_QPS. It writes to output what --help and --version ask for.
func ParseFlags(args, environment []string, output io.Writer) (Options, error) {
	o, err := parseFlags(args, environment, output)
	if err != nil {
		return Options{Log: logOptions()}, err
	}
	return o, nil
}

func parseFlags(args, environment []string, output io.Writer) (Options, error) {
	p := newFlagParser()
	err := p.flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(output, "Usage of yardmaster:")
		p.flags.SetOutput(output)
		p.flags.PrintDefaults()
	}
	if err != nil {
		return Options{}, err
	}
	if extra := p.flags.Args(); len(extra) > 0 {
		return Options{}, fmt.Errorf("unexpected argument %q", extra[0])
	}
	if p.version {
		fmt.Fprintln(output, version.Describe("yardmaster"))
		return Options{}, ErrVersionRequested
	}
	if err := flagenv.Set(p.flags, environment); err != nil {
		return Options{}, err
	}
	return p.buildOptions()
}

// flagParser has the flags, and their values before the conversion to Options.
type flagParser struct {
	flags            *flag.FlagSet
	values           Options
	controllers      string
	namespaces       string
	reportNamespaces string
	sessionPolicies  string
	approvalPolicies string
	version          bool
}

// reportNamespacesFlag enables the controller jobreport.
const reportNamespacesFlag = "report-namespaces"

func newFlagParser() *flagParser {
	p := &flagParser{flags: flag.NewFlagSet("yardmaster", flag.ContinueOnError)}
	p.flags.SetOutput(io.Discard) // it writes errors and usage, which are no log
	p.values.Log = logOptions()
	p.values.Log.BindFlags(p.flags)
	p.bindScopeFlags()
	p.bindServerFlags()
	p.bindLeaderElectionFlags()
	p.bindWebhookFlags()
	p.bindReportFlags()
	p.bindBrokerFlags()
	p.bindSessionFlags()
	return p
}

func (p *flagParser) bindScopeFlags() {
	o, f := &p.values, p.flags
	f.BoolVar(&p.version, "version", false, "Print the version and exit.")
	f.StringVar(&p.controllers, "controllers", "*",
		"Controllers to run: * for all, a name to enable one, -name to disable one. Known controllers: "+
			strings.Join(controllerNames(AllControllers()), ", ")+".")
	f.StringVar(&p.namespaces, "namespaces", "", "Namespaces to watch, separated by commas. Empty means all.")
	f.StringVar(&o.OperatorNamespace, "operator-namespace", "",
		"Namespace of the operator. Empty means that of its service account.")
	f.StringVar(&o.OperatorPod, "operator-pod", "",
		"Name of the Pod of the operator. If --worker-image is empty, the operator uses the image of this Pod.")
	f.IntVar(&o.Concurrency, "concurrency", 10, "Number of concurrent reconciliations of a kind, and of five times as many Schedules.")
	f.Float64Var(&o.KubeAPIQPS, "kube-api-qps", -1, "Maximum requests per second to the API server. A negative value means no limit, so that only API priority and fairness applies.")
	f.IntVar(&o.KubeAPIBurst, "kube-api-burst", 400, "Maximum burst of requests to the API server.")
}

func (p *flagParser) bindServerFlags() {
	o, f := &p.values, p.flags
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081",
		"Address of /healthz and /readyz. 0 disables them.")
	f.StringVar(&o.PprofAddress, "pprof-bind-address", "0",
		"Address of /debug/pprof, without authentication. 0 disables it.")
	f.StringVar(&o.Metrics.Address, "metrics-bind-address", ":8443", "Address of /metrics. 0 disables it.")
	f.BoolVar(&o.Metrics.Secure, "metrics-secure", true,
		"Serve metrics over HTTPS, to authenticated and authorized clients only.")
	f.BoolVar(&o.Metrics.OmitObjectNames, "metrics-omit-object-names", false,
		"Leave the labels queue, pool, schedule and runner empty, so that metrics are per namespace. Use it with thousands of these objects.")
}

func (p *flagParser) bindLeaderElectionFlags() {
	l, f := &p.values.LeaderElection, p.flags
	f.BoolVar(&l.Enabled, "leader-elect", true, "Use leader election, so that only one replica reconciles.")
	f.StringVar(&l.Namespace, "leader-election-namespace", "",
		"Namespace of the leader election Lease. Empty means that of the operator.")
	f.DurationVar(&l.LeaseDuration, "leader-election-lease-duration", 15*time.Second,
		"How long other replicas wait for a leader that stopped renewing the Lease before they take over.")
	f.DurationVar(&l.RenewDeadline, "leader-election-renew-deadline", 10*time.Second,
		"How long the leader retries to renew the Lease before it stops.")
	f.DurationVar(&l.RetryPeriod, "leader-election-retry-period", 2*time.Second, "Time between attempts to acquire or renew the Lease.")
}

func (p *flagParser) bindWebhookFlags() {
	w, f := &p.values.Webhook, p.flags
	f.BoolVar(&w.Enabled, "webhook", true, "Serve the webhooks.")
	f.BoolVar(&w.Mutating, "mutating-webhook", true,
		"A webhook records the creator of a session. Not needed with a MutatingAdmissionPolicy.")
	f.IntVar(&w.Port, "webhook-port", 9443, "Port of the webhooks.")
	f.StringVar(&w.CertDir, "cert-dir", filepath.Join(os.TempDir(), "yardmaster-certs"),
		"Directory of the webhooks' certificate authority, ca.crt and ca.key, which issues the certificate, or of a certificate, tls.crt and tls.key; and the file path with the secret path segment.")
	f.StringVar(&w.ClientCAFile, "webhook-client-ca-file", "",
		"File with the certificate authorities of the client certificate that callers of the webhook must present. Empty means that they need none.")
	f.StringVar(&w.Service, "webhook-service", "yardmaster-webhook",
		"Service in the operator's namespace for which the certificate authority issues the certificate.")
}

func (p *flagParser) bindReportFlags() {
	r, f := &p.values.Report, p.flags
	f.StringVar(&p.reportNamespaces, reportNamespacesFlag, "",
		"Namespaces whose Jobs are scanned for JobReports, separated by commas. Empty disables the controller jobreport.")
	f.DurationVar(&r.Interval, "report-interval", 5*time.Minute, "Time between two scans of a namespace.")
	f.IntVar(&r.MaxFindings, "report-top", 50, fmt.Sprintf("Maximum number of findings in a JobReport, at most %d.", jobreport.MaxFindings))
	f.BoolVar(&r.OpenReports, "report-openreports", false,
		"Also write the findings as OpenReports Reports, if the kind is installed.")
	r.Thresholds = jobreport.DefaultThresholds()
	for _, setting := range r.Thresholds.Settings() {
		f.DurationVar(setting.Value, "report-"+setting.Name, *setting.Value, setting.Usage)
	}
}

func (p *flagParser) bindBrokerFlags() {
	o, f := &p.values, p.flags
	o.Broker.BindFlags(f)
	brokeraccess.BindNetworkFlags(f, &o.BrokerNetwork)
	f.StringVar(&o.WorkerImage, "worker-image", "",
		"Image with this program, for the sidecar in drain mode Sidecar, the egress proxies of sessions and their network check, and archives of logs. Empty means that of --operator-pod. Without both, the first two are refused, sessions do not check their network, and no logs are archived.")
	f.StringVar(&o.WorkerAdminSecret, "worker-admin-secret", "yardmaster-worker-admin",
		"Secret in the operator's namespace with the key that signs requests of the operator to workers, and the tokens with which sessions use egress proxies. If empty, Pods that reach port 8081 of workers can send them the same requests, and no session can use a proxy.")
	f.DurationVar(&o.QueueSweep, "queue-sweep", 2*time.Minute,
		"Mean time between two comparisons of an unchanged Queue with its broker.")
	f.StringVar(&o.ClusterID, "cluster-id", "",
		"What identifies the cluster on brokers that it shares with others. Empty means the UID of the namespace kube-system, which the operator may read where it has a ClusterRole.")
}

func (p *flagParser) bindSessionFlags() {
	p.flags.StringVar(&p.approvalPolicies, "approval-policies", "yardmaster-approvals",
		"ValidatingAdmissionPolicies that protect approvals of SequentialJobs, separated by commas. Approvals do not count while a policy, or its binding of the same name, is not enforced. Leave it empty only in a cluster without other users.")
	n, f := &p.values.SessionNetwork, p.flags
	f.StringVar(&p.sessionPolicies, "session-policies", "yardmaster-session-users,yardmaster-default-deny",
		"ValidatingAdmissionPolicies that protect users of sessions, separated by commas. Sessions wait while a policy, or its binding of the same name, is not enforced. Leave it empty only in a cluster without other users.")
	f.StringVar(&p.values.NetworkCheckService, "network-check-service", "",
		"Service of the operator, in its namespace, through which sessions check whether NetworkPolicies are enforced. If empty, they do not.")
	f.Func("cluster-cidrs", "Networks of the cluster with public addresses, which the egress profile PublicOnly then excludes, as CIDRs separated by commas. May be repeated.",
		func(value string) error {
			err := flagenv.AppendPrefixes(&n.ClusterNetworks, value)
			if i := slices.IndexFunc(n.ClusterNetworks, sessionrunner.HasAllPublic); err == nil && i >= 0 {
				return fmt.Errorf("%s has all public addresses", n.ClusterNetworks[i])
			}
			return err
		})
	f.Func("egress-proxy-networks", "Further networks that egress proxies of sessions may connect to, such as that of an internal Git server, as CIDRs separated by commas. May be repeated. Default: public addresses only.",
		func(value string) error { return flagenv.AppendPrefixes(&n.ProxyNetworks, value) })
	f.StringVar(&n.DNSNamespace, "dns-namespace", metav1.NamespaceSystem, "Namespace of the Pods that resolve names for sessions.")
	f.Func("dns-selector", "Label selector of the Pods that resolve names for sessions. Default: k8s-app=kube-dns.", func(value string) (err error) {
		n.DNSSelector, err = metav1.ParseToLabelSelector(value)
		return err
	})
	f.Func("dns-cidrs", "Further addresses that resolve names for sessions, such as that of NodeLocal DNSCache, as CIDRs separated by commas. May be repeated.",
		func(value string) error { return flagenv.AppendPrefixes(&n.DNSNetworks, value) })
	f.Func("dns-port", "Port on which names are resolved for sessions. Default: 53.", func(value string) error {
		port, err := strconv.ParseUint(value, 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("%q is not a port from 1 to 65535", value)
		}
		n.DNSPort = int32(port)
		return nil
	})
}

func (p *flagParser) buildOptions() (Options, error) {
	o := p.values
	o.Namespaces = sortedSet(p.namespaces)
	o.SessionPolicies, o.ApprovalPolicies = sortedSet(p.sessionPolicies), sortedSet(p.approvalPolicies)
	o.Report.Namespaces = sortedSet(p.reportNamespaces)
	for _, namespace := range slices.Concat(o.Namespaces, o.Report.Namespaces) {
		if err := refuseNamespace(namespace); err != nil {
			return Options{}, err
		}
	}
	selectors := flagenv.SplitList(p.controllers)
	selected, err := SelectControllers(AllControllers(), selectors)
	if err != nil {
		return Options{}, err
	}
	given := map[string]bool{reportNamespacesFlag: len(o.Report.Namespaces) > 0}
	if o.Controllers, err = requireFlags(selected, selectors, given); err != nil {
		return Options{}, err
	}
	if err := validateReport(o.Report); err != nil {
		return Options{}, err
	}
	if err := o.Broker.Validate(); err != nil {
		return Options{}, err
	}
	if o.QueueSweep < time.Second {
		return Options{}, fmt.Errorf("--queue-sweep is %s, must be at least 1s", o.QueueSweep)
	}
	if o.Concurrency < 1 {
		return Options{}, fmt.Errorf("--concurrency is %d, must be at least 1", o.Concurrency)
	}
	l := o.LeaderElection
	if l.LeaseDuration <= l.RenewDeadline || l.RenewDeadline <= l.RetryPeriod {
		return Options{}, errors.New("--leader-election-lease-duration must be longer than " +
			"--leader-election-renew-deadline, and that longer than --leader-election-retry-period")
	}
	return o, nil
}

// refuseNamespace returns an error for the namespaces of Kubernetes itself, in which an admission policy denies the operator all writes.
func refuseNamespace(name string) error {
	if slices.Contains([]string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}, name) {
		return fmt.Errorf("the operator does not work in namespace %s, which belongs to Kubernetes itself: use another namespace", name)
	}
	return nil
}

func validateReport(r jobreportcontroller.Options) error {
	if r.Interval < time.Second {
		return fmt.Errorf("--report-interval is %s, must be at least 1s", r.Interval)
	}
	if r.MaxFindings < 0 || r.MaxFindings > jobreport.MaxFindings {
		return fmt.Errorf("--report-top is %d, must be between 0 and %d", r.MaxFindings, jobreport.MaxFindings)
	}
	if err := r.Thresholds.Validate(); err != nil {
		return fmt.Errorf("--report-%w", err)
	}
	return nil
}

func sortedSet(text string) []string {
	items := flagenv.SplitList(text)
	slices.Sort(items)
	return slices.Compact(items)
}
