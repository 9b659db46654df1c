package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/version"
)

// The statuses of a finding.
const (
	statusOK      = "OK"
	statusWarning = "WARNING"
	statusFailed  = "FAILED"
	statusUnknown = "UNKNOWN"
)

// operatorLease is the Lease of the replica that leads.
const operatorLease = "yardmaster.yardmaster.dev"

// finding is the result of a check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Reason string `json:"reason"`
	// Fix is a command.
	Fix string `json:"fix,omitempty"`
}

// doctor checks an installation with the permissions of its user.
type doctor struct {
	*environment

	cluster  *clusterConnection
	format   string
	findings []finding

	// namespace is that of the operator.
	namespace string
	// deployment is that of the operator; nil if it could not be read.
	deployment *appsv1.Deployment
	// operatorVersion is the version of the leader; empty if it is unknown.
	operatorVersion string
	hasGateway      bool
	// serverTime is the time of the API server.
	serverTime time.Time
}

func newDoctorCommand(env *environment) *cobra.Command {
	d := &doctor{environment: env}
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Check the installation, and show how to repair it",
		Long: "Check the CustomResourceDefinitions, the operator and its permissions, admission, network policies, brokers, quotas and clocks, " +
			"with your permissions. UNKNOWN means that you have no permission to see something, or that nothing has shown it yet.\n\n" +
			"The exit code is 1 if a check FAILED. --namespace is the namespace of the operator; without it, the command looks for the operator.",
		Args:              rejectArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if d.cluster, err = env.connect(env.clientConfig); err != nil {
				return err
			}
			d.namespace = d.cluster.givenNamespace(command)
			return d.run(command.Context())
		},
	}
	addOutputFlag(command, &d.format, outputTable, outputJSON)
	return command
}

// checks are the checks in the order of the output. Each uses what earlier ones have read.
var checks = []struct {
	name string
	run  func(d *doctor, ctx context.Context, check string) error
}{
	{"operator", (*doctor).checkOperator},
	{"leader", (*doctor).checkLeader},
	{"definitions", (*doctor).checkDefinitions},
	{"permissions", (*doctor).checkPermissions},
	{"webhooks", (*doctor).checkWebhooks},
	{"webhook calls", (*doctor).checkWebhookCalls},
	{"admission policies", (*doctor).checkAdmissionPolicies},
	{"network policies", (*doctor).checkNetwork},
	{"brokers", (*doctor).checkBrokers},
	{"quotas", (*doctor).checkQuotas},
	{"clocks", (*doctor).checkClocks},
}

func (d *doctor) run(ctx context.Context) (err error) {
	if d.serverTime, err = d.cluster.serverTime(ctx); err != nil {
		return err
	}
	for _, check := range checks {
		before := len(d.findings)
		switch err := check.run(d, ctx, check.name); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			d.addError(check.name, err)
		case len(d.findings) == before:
			return fmt.Errorf("the check of %s found nothing", check.name)
		}
	}
	if d.format == outputJSON {
		err = printEncoded(d.out, d.format, d.findings)
	} else {
		err = d.printFindings()
	}
	if err == nil && slices.ContainsFunc(d.findings, func(f finding) bool { return f.Status == statusFailed }) {
		return errUnsuccessful
	}
	return err
}

func (d *doctor) printFindings() error {
	colors := map[string]terminal.Color{statusOK: terminal.Green, statusWarning: terminal.Yellow, statusFailed: terminal.Red, statusUnknown: terminal.Dim}
	rows := [][]string{{"CHECK", "STATUS", "REASON"}}
	for _, f := range d.findings {
		rows = append(rows, []string{f.Check, d.outputStyle().Colorize(colors[f.Status], f.Status), terminal.Sanitize(f.Reason)})
	}
	var lines []string
	for i, line := range d.outputStyle().Table(rows) {
		lines = append(lines, line)
		if i > 0 && d.findings[i-1].Fix != "" {
			lines = append(lines, "  fix: "+terminal.Sanitize(d.findings[i-1].Fix))
		}
	}
	return terminal.WriteLines(d.out, lines)
}

func (d *doctor) add(check, status, fix, format string, arguments ...any) {
	d.findings = append(d.findings, finding{Check: check, Status: status, Reason: fmt.Sprintf(format, arguments...), Fix: fix})
}

// addError adds that a check could not read something. The API server's message about a missing permission names the permission.
func (d *doctor) addError(check string, err error) {
	reason := strings.Join(describeError(err), "; ")
	if _, permission, found := strings.Cut(reason, " cannot "); found && isPermissionError(err) {
		reason = "you have no permission to " + permission
	}
	d.add(check, statusUnknown, "", "%s", reason)
}

// serverTime returns the time of the API server, from the header of a response.
func (c *clusterConnection) serverTime(ctx context.Context) (time.Time, error) {
	httpClient, err := rest.HTTPClientFor(c.restConfig)
	if err != nil {
		return time.Time{}, err
	}
	base, _, err := rest.DefaultServerUrlFor(c.restConfig)
	if err != nil {
		return time.Time{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), http.NoBody)
	if err != nil {
		return time.Time{}, err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	if err := response.Body.Close(); err != nil {
		return time.Time{}, err
	}
	return http.ParseTime(response.Header.Get("Date"))
}

// checkOperator finds the Deployment, and checks that its Pods are ready.
func (d *doctor) checkOperator(ctx context.Context, check string) error {
	labels := client.MatchingLabels{"app.kubernetes.io/name": operatorName}
	deployments := &appsv1.DeploymentList{}
	err := d.cluster.List(ctx, deployments, client.InNamespace(d.namespace), labels)
	if d.namespace == "" && isPermissionError(err) {
		d.namespace = defaultOperatorNamespace
		err = d.cluster.List(ctx, deployments, client.InNamespace(d.namespace), labels)
	}
	if err != nil {
		return err
	}
	deployments.Items = slices.DeleteFunc(deployments.Items, func(d appsv1.Deployment) bool { return d.Name != operatorName }) // the gateway
	switch len(deployments.Items) {
	case 0:
		where := "any namespace"
		if d.namespace != "" {
			where = "namespace " + d.namespace
		}
		d.namespace = cmp.Or(d.namespace, defaultOperatorNamespace)
		d.add(check, statusFailed, d.reinstall(), "no Deployment of the operator exists in %s", where)
		return nil
	case 1:
	default:
		var commands []string
		for i := range deployments.Items {
			commands = append(commands, "kubectl yardmaster doctor --namespace "+deployments.Items[i].Namespace)
		}
		d.add(check, statusWarning, strings.Join(commands, "; "), "%d operators are installed; the checks are about that in namespace %s",
			len(commands), deployments.Items[0].Namespace)
	}
	d.deployment = &deployments.Items[0]
	d.namespace = d.deployment.Namespace
	d.hasGateway = d.cluster.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: gatewayName}, &appsv1.Deployment{}) == nil
	wanted, ready := ptr.Deref(d.deployment.Spec.Replicas, 1), d.deployment.Status.ReadyReplicas
	inspect := "kubectl describe pods --namespace " + d.namespace + " --selector app.kubernetes.io/name=yardmaster,app.kubernetes.io/component=operator"
	switch {
	case wanted == 0:
		d.add(check, statusFailed, fmt.Sprintf("kubectl scale deployment %s --namespace %s --replicas=2", d.deployment.Name, d.namespace),
			"the Deployment has no replicas")
	case ready == 0:
		d.add(check, statusFailed, inspect, "none of %d replicas is ready", wanted)
	case ready < wanted:
		d.add(check, statusWarning, inspect, "%d of %d replicas are ready", ready, wanted)
	default:
		d.add(check, statusOK, "", "%d of %d replicas are ready in namespace %s", ready, wanted, d.namespace)
	}
	return nil
}

// checkLeader checks that a replica works, and reads its version.
func (d *doctor) checkLeader(ctx context.Context, check string) error {
	lease := &coordinationv1.Lease{}
	err := d.cluster.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: operatorLease}, lease)
	restart := fmt.Sprintf("kubectl rollout restart deployment %s --namespace %s", operatorName, d.namespace)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	d.operatorVersion = lease.Labels[version.LabelName]
	held := lastWrite(&lease.ObjectMeta).Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	switch {
	case err != nil:
		d.add(check, statusFailed, restart, "no replica has ever led: the Lease %s/%s does not exist", d.namespace, operatorLease)
	case ptr.Deref(lease.Spec.HolderIdentity, "") == "" || d.serverTime.After(held.Add(time.Second)): // the times have whole seconds
		d.add(check, statusFailed, restart, "no replica leads: the Lease %s/%s was last renewed at %s",
			d.namespace, lease.Name, lastWrite(&lease.ObjectMeta).UTC().Format(time.RFC3339))
	case d.operatorVersion == "":
		d.add(check, statusUnknown, "", "%s leads, of a version that does not say which it is", *lease.Spec.HolderIdentity)
	case d.isOtherVersion():
		d.add(check, statusWarning, d.reinstall(), "%s leads and has version %s, the plugin %s: an upgrade is not complete, or the plugin is that of another installation",
			*lease.Spec.HolderIdentity, d.operatorVersion, version.Version())
	default:
		d.add(check, statusOK, "", "%s leads and has version %s", *lease.Spec.HolderIdentity, d.operatorVersion)
	}
	return nil
}

// isOtherVersion reports whether the operator has another version than the plugin. What differs then is no mistake.
func (d *doctor) isOtherVersion() bool {
	return d.operatorVersion != "" && d.operatorVersion != version.Label()
}

// differs is the status of what is not as in this version.
func (d *doctor) differs() string {
	if d.isOtherVersion() {
		return statusWarning
	}
	return statusFailed
}

// lastWrite returns the time of the last write of an object, by the clock of the API server.
func lastWrite(object *metav1.ObjectMeta) time.Time {
	last := object.CreationTimestamp.Time
	for i := range object.ManagedFields {
		if written := object.ManagedFields[i].Time; written != nil && written.After(last) {
			last = written.Time
		}
	}
	return last
}

// setting returns the value of a flag of the operator.
func (d *doctor) setting(flag, standard string) string {
	variable := "YARDMASTER_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	value := standard
	for i := range d.deployment.Spec.Template.Spec.Containers {
		container := &d.deployment.Spec.Template.Spec.Containers[i]
		if container.Name != operatorName {
			continue
		}
		for _, one := range container.Env {
			if one.Name == variable {
				value = one.Value
			}
		}
		for _, argument := range slices.Concat(container.Command, container.Args) {
			if given, found := strings.CutPrefix(argument, "--"+flag+"="); found {
				value = given
			}
		}
	}
	return value
}

// settingList returns the values of a flag that is a list.
func (d *doctor) settingList(flag, standard string) []string {
	return slices.DeleteFunc(strings.Split(d.setting(flag, standard), ","), func(item string) bool { return item == "" })
}

// watched returns the namespaces of the operator; an empty one stands for all.
func (d *doctor) watched() []string {
	if namespaces := d.settingList("namespaces", ""); len(namespaces) > 0 {
		return namespaces
	}
	return []string{metav1.NamespaceAll}
}

func (d *doctor) runs(controller string) bool {
	selectors := d.settingList("controllers", "*")
	if controller == "jobreport" && d.setting("report-namespaces", "") == "" {
		return false
	}
	return slices.Contains(selectors, controller) || slices.Contains(selectors, "*") && !slices.Contains(selectors, "-"+controller)
}

// reinstall returns the command that restores an installation, as it was installed.
func (d *doctor) reinstall() string {
	if d.deployment == nil {
		return fmt.Sprintf("make install deploy IMG=registry.example/yardmaster:%s OPERATOR_NAMESPACE=%s", version.Label(), d.namespace)
	}
	if upgrade := upgradeOfRelease(d.deployment); upgrade != "" {
		return upgrade
	}
	arguments := []string{"make install deploy"}
	for i := range d.deployment.Spec.Template.Spec.Containers {
		arguments = append(arguments, "IMG="+d.deployment.Spec.Template.Spec.Containers[i].Image)
		break
	}
	arguments = append(arguments, "NAMESPACES='"+cmp.Or(d.setting("namespaces", ""), "*")+"'", "OPERATOR_NAMESPACE="+d.namespace)
	if controllers := d.setting("controllers", "*"); controllers != "*" {
		arguments = append(arguments, "CONTROLLERS='"+controllers+"'")
	}
	if reported := d.setting("report-namespaces", ""); reported != "" {
		arguments = append(arguments, "REPORT_NAMESPACES="+reported)
	}
	if replicas := ptr.Deref(d.deployment.Spec.Replicas, 1); replicas != 0 && replicas != standardReplicas {
		arguments = append(arguments, fmt.Sprintf("REPLICAS=%d", replicas))
	}
	components, settings := d.componentsAndSettings()
	if d.certificateSecret() == certManagerSecretName {
		components = append(components, "cert-manager")
	}
	if !d.recordsCreatorsByWebhook() {
		components = append(components, "admission-policy")
	}
	if len(components) > 0 {
		arguments = append(arguments, "COMPONENTS="+strings.Join(components, ","))
	}
	if len(settings) > 0 {
		arguments = append(arguments, "SETTINGS='"+strings.Join(settings, ",")+"'")
	}
	return strings.Join(arguments, " ")
}

// componentsAndSettings returns the values of COMPONENTS and SETTINGS for the gateway and for the variables of the operator. `make deploy` has
// its own arguments for the other variables, or sets them always.
func (d *doctor) componentsAndSettings() (components, settings []string) {
	if d.hasGateway {
		components = append(components, "gateway")
	}
	for i := range d.deployment.Spec.Template.Spec.Containers {
		for _, variable := range d.deployment.Spec.Template.Spec.Containers[i].Env {
			switch variable.Name {
			case "YARDMASTER_NAMESPACES", "YARDMASTER_CONTROLLERS", "YARDMASTER_REPORT_NAMESPACES", "YARDMASTER_CERT_DIR",
				"YARDMASTER_NETWORK_CHECK_SERVICE", "YARDMASTER_MUTATING_WEBHOOK":
			case "YARDMASTER_REPORT_OPENREPORTS":
				components = append(components, "jobreport-openreports")
			case "YARDMASTER_BROKER_URL_SECRET":
				components = append(components, "default-broker")
			default:
				// SETTINGS are separated by commas.
				if strings.HasPrefix(variable.Name, "YARDMASTER_") && variable.ValueFrom == nil && !strings.ContainsAny(variable.Value, "',") {
					settings = append(settings, variable.Name+"="+variable.Value)
				}
			}
		}
	}
	return components, settings
}

// upgradeOfRelease returns the command that restores the release of the chart to which an object belongs; empty without a release.
func upgradeOfRelease(object client.Object) string {
	release := object.GetAnnotations()["meta.helm.sh/release-name"]
	if release == "" {
		return ""
	}
	_, chartVersion, _ := strings.Cut(object.GetLabels()["helm.sh/chart"], "-")
	return fmt.Sprintf("helm upgrade %s oci://ghcr.io/yardmaster/charts/yardmaster --version %s --namespace %s --reuse-values",
		release, cmp.Or(chartVersion, version.Version()), object.GetAnnotations()["meta.helm.sh/release-namespace"])
}

// reinstallShared returns the command that restores what all operators share: another release than the operator's may have installed it.
func (d *doctor) reinstallShared(ctx context.Context) string {
	if d.deployment == nil || upgradeOfRelease(d.deployment) == "" {
		return d.reinstall()
	}
	definition := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "sequentialjobs." + v1alpha1.GroupVersion.Group}}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := d.cluster.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
		return d.reinstall()
	}
	return cmp.Or(upgradeOfRelease(definition), "make install")
}

// standardReplicas is the number of replicas in config/manager.
const standardReplicas = 2

func (d *doctor) recordsCreatorsByWebhook() bool {
	return d.setting("mutating-webhook", "true") == "true"
}

// errNoDeployment is why a check cannot be made that depends on the settings of the operator.
var errNoDeployment = errors.New("the settings of the operator are unknown, because its Deployment could not be read")

const certManagerSecretName = "yardmaster-webhook-certs"

// certificateSecret returns the name of the Secret that the operator's Pods mount.
func (d *doctor) certificateSecret() string {
	for i := range d.deployment.Spec.Template.Spec.Volumes {
		if volume := &d.deployment.Spec.Template.Spec.Volumes[i]; volume.Name == "certs" && volume.Secret != nil {
			return volume.Secret.SecretName
		}
	}
	return authoritySecretName
}
