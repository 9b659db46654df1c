package manager

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/controller/jobreport"
	"github.com/yardmaster/yardmaster/internal/report"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// Options are what the operator's flags say.
type Options struct {
	// Controllers that run.
	Controllers []Controller
	// Namespaces that are watched; all when empty.
	Namespaces []string
	// Concurrency is how many objects of a kind are reconciled at once.
	Concurrency int
	// OperatorNamespace is where the operator's own Lease and Secret are.
	OperatorNamespace string

	KubeAPIQPS   float64
	KubeAPIBurst int

	LeaderElection LeaderElectionOptions
	Metrics        MetricsOptions
	Webhook        WebhookOptions

	// Report is what the controller jobreport scans, and how.
	Report jobreport.Options

	// Broker of Queues that name none.
	Broker DefaultBroker
	// WorkerImage is the image of the sidecar of workers in drain mode Sidecar, which has
	// the program yardmaster; empty: that mode is refused.
	WorkerImage string
	// QueueSweep is the time between two comparisons of a queue on its broker with its
	// Queue; 0: the controller's own.
	QueueSweep    time.Duration
	brokerManager func() (*brokerconn.Manager, error)

	HealthAddress string
	PprofAddress  string
	Log           zap.Options
}

// LeaderElectionOptions says how one replica of several is chosen.
type LeaderElectionOptions struct {
	Enabled       bool
	Namespace     string
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
}

// MetricsOptions says how metrics are served.
type MetricsOptions struct {
	Address string
	Secure  bool
}

// CertManagement says who makes the webhook's certificate.
type CertManagement string

// The ways to manage certificates.
const (
	// CertManagementSelf: the operator makes and rotates it.
	CertManagementSelf CertManagement = "self"
	// CertManagementExternal: something else, such as cert-manager, puts it into the directory.
	CertManagementExternal CertManagement = "external"
)

// WebhookOptions says how the webhooks are served.
type WebhookOptions struct {
	Enabled        bool
	Port           int
	CertDir        string
	CertManagement CertManagement
	// Names of the objects that the self-managed certificate belongs to.
	Secret        string
	Service       string
	Configuration string
}

// ErrVersionRequested is returned for --version, once the version is printed.
var ErrVersionRequested = errors.New("version requested")

// LookupEnv looks a variable up, as os.LookupEnv does.
type LookupEnv func(name string) (value string, found bool)

// ParseFlags reads the flags in args. A flag that is not among them is taken from the
// environment: --kube-api-qps from YARDMASTER_KUBE_API_QPS.
func ParseFlags(args []string, environment LookupEnv, output io.Writer) (Options, error) {
	p := newFlagParser(output)
	if err := p.flags.Parse(args); err != nil {
		return Options{}, err
	}
	if extra := p.flags.Args(); len(extra) > 0 {
		return Options{}, fmt.Errorf("unexpected argument %q", extra[0])
	}
	if p.version {
		fmt.Fprintln(output, Version())
		return Options{}, ErrVersionRequested
	}
	if err := setFromEnvironment(p.flags, environment); err != nil {
		return Options{}, err
	}
	return p.buildOptions()
}

// flagParser holds the flags, and those of their values that are not yet Options.
type flagParser struct {
	flags            *flag.FlagSet
	values           Options
	controllers      string
	namespaces       string
	reportNamespaces string
	certs            string
	version          bool
}

// reportNamespacesFlag is the flag that switches the controller jobreport on.
const reportNamespacesFlag = "report-namespaces"

func newFlagParser(output io.Writer) *flagParser {
	p := &flagParser{flags: flag.NewFlagSet("yardmaster", flag.ContinueOnError)}
	p.flags.SetOutput(output)
	p.values.Log = zap.Options{TimeEncoder: zapcore.RFC3339NanoTimeEncoder}
	p.values.Log.BindFlags(p.flags)
	p.bindScopeFlags()
	p.bindServerFlags()
	p.bindLeaderElectionFlags()
	p.bindWebhookFlags()
	p.bindReportFlags()
	p.bindBrokerFlags()
	return p
}

func (p *flagParser) bindScopeFlags() {
	o, f := &p.values, p.flags
	f.BoolVar(&p.version, "version", false, "Print the version and exit.")
	f.StringVar(&p.controllers, "controllers", "*",
		"Controllers to run: * for all, a name to add one, -name to leave one out. Known: "+
			strings.Join(controllerNames(AllControllers()), ", ")+".")
	f.StringVar(&p.namespaces, "namespaces", "", "Namespaces to watch, separated by commas. Empty: all.")
	f.StringVar(&o.OperatorNamespace, "operator-namespace", "",
		"Namespace the operator runs in. Empty: that of its service account.")
	f.IntVar(&o.Concurrency, "concurrency", 10, "How many objects of a kind are reconciled at once.")
	f.Float64Var(&o.KubeAPIQPS, "kube-api-qps", -1, "Requests per second to the API server; negative: as many as its priority and fairness lets through.")
	f.IntVar(&o.KubeAPIBurst, "kube-api-burst", 400, "Requests to the API server above that rate for a short time.")
}

func (p *flagParser) bindServerFlags() {
	o, f := &p.values, p.flags
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081",
		"Address of /healthz and /readyz. 0: not served.")
	f.StringVar(&o.PprofAddress, "pprof-bind-address", "0",
		"Address of /debug/pprof, without authentication. 0: not served.")
	f.StringVar(&o.Metrics.Address, "metrics-bind-address", ":8443", "Address of /metrics. 0: not served.")
	f.BoolVar(&o.Metrics.Secure, "metrics-secure", true,
		"Serve metrics over HTTPS, to who is authenticated and authorized.")
}

func (p *flagParser) bindLeaderElectionFlags() {
	l, f := &p.values.LeaderElection, p.flags
	f.BoolVar(&l.Enabled, "leader-elect", true, "Let one replica of several work.")
	f.StringVar(&l.Namespace, "leader-election-namespace", "",
		"Namespace of the Lease. Empty: that of the operator.")
	f.DurationVar(&l.LeaseDuration, "leader-election-lease-duration", 15*time.Second,
		"How long other replicas wait before they take over from a leader that is gone.")
	f.DurationVar(&l.RenewDeadline, "leader-election-renew-deadline", 10*time.Second,
		"How long the leader tries to renew before it gives up.")
	f.DurationVar(&l.RetryPeriod, "leader-election-retry-period", 2*time.Second, "Time between tries.")
}

func (p *flagParser) bindWebhookFlags() {
	w, f := &p.values.Webhook, p.flags
	f.BoolVar(&w.Enabled, "webhook", true, "Serve the webhooks.")
	f.IntVar(&w.Port, "webhook-port", 9443, "Port of the webhooks.")
	f.StringVar(&w.CertDir, "cert-dir", filepath.Join(os.TempDir(), "yardmaster-certs"),
		"Directory of the webhooks' certificate: tls.crt, tls.key and ca.crt.")
	f.StringVar(&p.certs, "cert-management", string(CertManagementSelf),
		"Who makes that certificate: self, or external (e.g. cert-manager).")
	f.StringVar(&w.Secret, "webhook-secret", "yardmaster-webhook-certs",
		"Secret in the operator's namespace that holds the self-managed certificate.")
	f.StringVar(&w.Service, "webhook-service", "yardmaster-webhook",
		"Service in the operator's namespace that the self-managed certificate is for.")
	f.StringVar(&w.Configuration, "webhook-configuration", "yardmaster",
		"Name of the ValidatingWebhookConfiguration and the MutatingWebhookConfiguration that are given the self-managed CA.")
}

func (p *flagParser) bindReportFlags() {
	r, f := &p.values.Report, p.flags
	f.StringVar(&p.reportNamespaces, reportNamespacesFlag, "",
		"Namespaces whose Jobs are reported on, separated by commas. Empty: none, and the controller jobreport is off.")
	f.DurationVar(&r.Interval, "report-interval", 5*time.Minute, "Time between two scans of these namespaces.")
	f.IntVar(&r.MaxFindings, "report-top", 50, fmt.Sprintf("How many Jobs a report tells of one by one, at most %d.", report.MaxFindings))
	f.BoolVar(&r.OpenReports, "report-openreports", false,
		"Write the reports as OpenReports Reports too, where the kind is installed.")
	r.Thresholds = zombie.DefaultThresholds()
	for _, setting := range r.Thresholds.Settings() {
		f.DurationVar(setting.Value, "report-"+setting.Name, *setting.Value, setting.Usage)
	}
}

func (p *flagParser) bindBrokerFlags() {
	o, f := &p.values, p.flags
	f.StringVar(&o.Broker.URLSecret, "broker-url-secret", "",
		"Secret in the operator's namespace with the URL of the broker for Queues that name none, as name or name/key. Empty: there is none.")
	f.StringVar(&o.Broker.Engine, "broker-engine", string(v1alpha1.EngineNATS), "Engine of that broker.")
	f.StringVar(&o.Broker.TLSSecret, "broker-tls-secret", "",
		"Secret with ca.crt, tls.crt and tls.key for that broker. Empty: none.")
	f.StringVar(&o.Broker.CredentialsSecret, "broker-credentials-secret", "",
		"Secret with username and password, token or creds for that broker. Empty: none.")
	f.StringVar(&o.WorkerImage, "worker-image", "",
		"Image that has this program, for the sidecar of workers in drain mode Sidecar. Empty: that mode is refused.")
	f.DurationVar(&o.QueueSweep, "queue-sweep", 2*time.Minute,
		"Time between two comparisons of a queue on its broker with its Queue, when the Queue has not changed.")
}

// setFromEnvironment sets the flags that were not given from the environment.
func setFromEnvironment(flags *flag.FlagSet, environment LookupEnv) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })

	var errs []error
	flags.VisitAll(func(f *flag.Flag) {
		variable := "YARDMASTER_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, found := environment(variable)
		if !found || given[f.Name] {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("invalid value %q of %s: %w", value, variable, err))
		}
	})
	return errors.Join(errs...)
}

func (p *flagParser) buildOptions() (Options, error) {
	o := p.values
	o.Namespaces = sortedSet(p.namespaces)
	o.Report.Namespaces = sortedSet(p.reportNamespaces)
	selectors := splitList(p.controllers)
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
	if err := o.Broker.validate(); err != nil {
		return Options{}, err
	}
	if o.QueueSweep < time.Second {
		return Options{}, fmt.Errorf("--queue-sweep is %s, must be at least 1s", o.QueueSweep)
	}
	o.Webhook.CertManagement = CertManagement(p.certs)
	if !slices.Contains([]CertManagement{CertManagementSelf, CertManagementExternal}, o.Webhook.CertManagement) {
		return Options{}, fmt.Errorf("--cert-management is %q, must be %s or %s", p.certs, CertManagementSelf, CertManagementExternal)
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

func validateReport(r jobreport.Options) error {
	if r.Interval < time.Second {
		return fmt.Errorf("--report-interval is %s, must be at least 1s", r.Interval)
	}
	if r.MaxFindings < 0 || r.MaxFindings > report.MaxFindings {
		return fmt.Errorf("--report-top is %d, must be between 0 and %d", r.MaxFindings, report.MaxFindings)
	}
	if err := r.Thresholds.Validate(); err != nil {
		return fmt.Errorf("--report-%w", err)
	}
	return nil
}

// sortedSet is a list in order, without what is there twice.
func sortedSet(text string) []string {
	items := splitList(text)
	slices.Sort(items)
	return slices.Compact(items)
}

// splitList splits at commas, and leaves out what is empty.
func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
