package plugin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/config"
	"github.com/yardmaster/yardmaster/internal/operator/ca"
	"github.com/yardmaster/yardmaster/internal/version"
)

// readManifests returns the objects in files of this version.
func readManifests(pattern string) (objects []*unstructured.Unstructured, err error) {
	files, err := fs.Glob(config.Manifests, pattern)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		raw, err := config.Manifests.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
			encoded, err := utilyaml.ToJSON(document)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON(encoded); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// ofOperator returns the object of the same kind that belongs to the operator, under the name that it has in the cluster: in another
// namespace than that in the manifests, names of objects without a namespace end with that of the operator, unless a kustomization of
// the user has set it.
func (d *doctor) ofOperator(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if d.namespace != defaultOperatorNamespace {
		own := want.DeepCopy()
		own.SetName(own.GetName() + "-" + d.namespace)
		if got, err := d.cluster.inCluster(ctx, own); err != nil || got != nil {
			if policy, found, _ := unstructured.NestedString(want.Object, "spec", "policyName"); found {
				_ = unstructured.SetNestedField(want.Object, policy+"-"+d.namespace, "spec", "policyName")
			}
			want.SetName(own.GetName())
			return got, err
		}
	}
	return d.cluster.inCluster(ctx, want)
}

// servesNoWebhooks adds a finding if the operator serves no webhooks, as one with Roles only.
func (d *doctor) servesNoWebhooks(check string) bool {
	if d.setting("webhook", "true") == "true" {
		return false
	}
	d.add(check, statusWarning, "", "the operator serves no webhooks (--webhook=false): what only they refuse is a condition of the object")
	return true
}

// inCluster returns the object of the same kind and name in the cluster; nil if it does not exist.
func (c *clusterConnection) inCluster(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(want.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(want), got); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return got, nil
}

// defaults are what the API server adds to the objects that are compared.
var defaults = []any{nil, "*", "Equivalent", "Never", map[string]any{}}

// difference returns the path of the first value that is not as wanted; empty without a difference.
func difference(path string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		fields, isMap := got.(map[string]any)
		if !isMap {
			return path
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if found := difference(path+"."+name, want[name], fields[name]); found != "" {
				return found
			}
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			_, isWanted := want[name]
			if !isWanted && !slices.ContainsFunc(defaults, func(standard any) bool { return reflect.DeepEqual(standard, fields[name]) }) {
				return path + "." + name
			}
		}
		return ""
	case []any:
		items, _ := got.([]any)
		if len(items) != len(want) {
			return path
		}
		for i := range want {
			if found := difference(fmt.Sprintf("%s[%d]", path, i), want[i], items[i]); found != "" {
				return found
			}
		}
		return ""
	case string: // kustomize and Helm break long lines of expressions at other places
		text, isString := got.(string)
		if isString && slices.Equal(strings.Fields(want), strings.Fields(text)) {
			return ""
		}
	}
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return path
}

// checkDefinitions compares the CustomResourceDefinitions with those of this version.
func (d *doctor) checkDefinitions(ctx context.Context, check string) error {
	wanted, err := readManifests("crd/bases/*.yaml")
	if err != nil {
		return err
	}
	isEstablished := func(condition any) bool {
		fields, _ := condition.(map[string]any)
		return fields["type"] == "Established" && fields["status"] == "True"
	}
	problems := 0
	for _, want := range wanted {
		name := want.GetName()
		got, err := d.cluster.inCluster(ctx, want)
		if err != nil {
			return err
		}
		if got == nil {
			d.add(check, statusFailed, d.reinstallShared(ctx), "the CustomResourceDefinition %s does not exist", name)
			problems++
			continue
		}
		wantedVersions, _, _ := unstructured.NestedSlice(want.Object, "spec", "versions")
		versions, _, _ := unstructured.NestedSlice(got.Object, "spec", "versions")
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		if !slices.ContainsFunc(conditions, isEstablished) {
			d.add(check, statusFailed, "kubectl describe customresourcedefinition "+name, "the API server does not serve %s", name)
			problems++
		} else if path := difference("spec.versions", wantedVersions, versions); path != "" {
			d.add(check, d.differs(), d.reinstallShared(ctx), "the CustomResourceDefinition %s is not that of version %s: %s differs", name, version.Version(), path)
			problems++
		}
	}
	if problems == 0 {
		d.add(check, statusOK, "", "%d CustomResourceDefinitions are those of version %s", len(wanted), version.Version())
	}
	return nil
}

// access is a permission that the operator needs.
type access struct{ namespace, verb, group, resource, subresource, name string }

func (a access) String() string {
	text := a.verb + " " + a.resource
	if a.group != "" {
		text += "." + a.group
	}
	if a.subresource != "" {
		text += "/" + a.subresource
	}
	if a.name != "" {
		text += " " + a.name
	}
	return text
}

// checkPermissions asks the API server for each permission of the controllers that run.
func (d *doctor) checkPermissions(ctx context.Context, check string) error {
	if d.deployment == nil {
		return errNoDeployment
	}
	needed, err := d.neededAccess()
	if err != nil {
		return err
	}
	user := fmt.Sprintf("system:serviceaccount:%s:%s", d.namespace, d.deployment.Spec.Template.Spec.ServiceAccountName)
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + d.namespace, "system:authenticated"}
	allowed := make([]bool, len(needed))
	var asking errgroup.Group
	asking.SetLimit(16)
	for i, a := range needed {
		asking.Go(func() error {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: a.namespace, Verb: a.verb, Group: a.group, Resource: a.resource, Subresource: a.subresource, Name: a.name,
				},
			}}
			err := d.cluster.Create(ctx, review)
			allowed[i] = review.Status.Allowed
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return err
	}
	missing := map[string][]string{} // by namespace
	for i, a := range needed {
		if !allowed[i] {
			missing[a.namespace] = append(missing[a.namespace], a.String())
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(missing)) {
		where, status := "in all namespaces", d.differs()
		switch {
		case namespace != "":
			where = "in namespace " + namespace
		case d.setting("webhook", "true") != "true": // probably an installation with Roles only
			status = statusWarning
		}
		d.add(check, status, d.reinstall(), "the operator may not %s %s", enumerate(missing[namespace]), where)
	}
	if len(missing) == 0 {
		d.add(check, statusOK, "", "the operator has the %d permissions that its controllers need", len(needed))
	}
	return nil
}

// neededAccess returns the permissions in the Roles of the controllers that run, and of the operator itself.
func (d *doctor) neededAccess() ([]access, error) {
	needed := map[access]bool{}
	add := func(namespaces []string, rules []rbacv1.PolicyRule) {
		for _, namespace := range namespaces {
			for i := range rules {
				addAccess(needed, namespace, &rules[i])
			}
		}
	}
	files, err := fs.Glob(config.Manifests, "rbac/*/*")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		parts := strings.Split(file, "/")
		scope, controller := parts[1], parts[2]
		if scope != "operator" {
			if !d.runs(controller) {
				continue
			}
			file += "/role.yaml"
		} else if controller == "kustomization.yaml" {
			continue
		}
		objects, err := readManifests(file)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			role := &rbacv1.ClusterRole{}
			switch {
			case !strings.HasSuffix(object.GetKind(), "Role") || object.GetName() == "yardmaster-metrics-reader": // of readers
				continue
			case runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role) != nil:
				return nil, fmt.Errorf("%s is not a Role", file)
			}
			switch {
			case scope == "controllers" && controller == "jobreport":
				add(d.settingList("report-namespaces", ""), role.Rules)
			case scope == "controllers":
				add(d.watched(), role.Rules)
			case object.GetKind() == "Role":
				add([]string{d.namespace}, role.Rules)
			default:
				add([]string{""}, role.Rules)
			}
		}
	}
	return slices.SortedFunc(maps.Keys(needed), func(a, b access) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource),
			cmp.Compare(a.subresource, b.subresource), cmp.Compare(a.verb, b.verb), cmp.Compare(a.name, b.name))
	}), nil
}

func addAccess(needed map[access]bool, namespace string, rule *rbacv1.PolicyRule) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, full := range rule.Resources {
			resource, subresource, _ := strings.Cut(full, "/")
			for _, verb := range rule.Verbs {
				for _, name := range names {
					needed[access{namespace, verb, group, resource, subresource, name}] = true
				}
			}
		}
	}
}

// controllersByResource are the controllers whose webhooks validate a resource.
var controllersByResource = map[string]string{
	"sequentialjobs": "sequentialjob", "queues": "queue", "policies": "policy", "workerpools": "workerpool",
	"agenticsessions": "agenticsession", "schedules": "schedule",
}

// watchedCondition is the match condition with the namespaces of the operator.
const watchedCondition = `"".split(",")`

// writeWatched writes the operator's namespaces into match conditions, as an installation does.
func (d *doctor) writeWatched(conditions any) {
	items, _ := conditions.([]any)
	for _, condition := range items {
		if fields, isCondition := condition.(map[string]any); isCondition && fields["name"] == "in-a-watched-namespace" {
			expression, _ := fields["expression"].(string)
			fields["expression"] = strings.Replace(expression, watchedCondition, `"`+d.setting("namespaces", "")+`".split(",")`, 1)
		}
	}
}

// webhookInCluster is a webhook as the API server calls it.
type webhookInCluster struct {
	// path is the path on the server, without the secret segment.
	name, path string
	admissionregistrationv1.WebhookClientConfig
}

// checkWebhooks compares the webhook configurations with those of this version, and with the certificates of the operator.
func (d *doctor) checkWebhooks(ctx context.Context, check string) error {
	if d.deployment == nil {
		return errNoDeployment
	}
	if d.servesNoWebhooks(check) {
		return nil
	}
	configurations, err := readManifests("webhook/webhooks.yaml")
	if err != nil {
		return err
	}
	before := len(d.findings)
	var webhooks []webhookInCluster
	for _, want := range configurations {
		if want.GetKind() == "MutatingWebhookConfiguration" && !d.recordsCreatorsByWebhook() {
			continue
		}
		got, err := d.ofOperator(ctx, want)
		if err != nil {
			return err
		}
		found, err := d.compareWebhooks(check, want, got)
		if err != nil {
			return err
		}
		webhooks = append(webhooks, found...)
	}
	if err := d.checkCertificates(ctx, check, webhooks); err != nil {
		d.addError(check, err)
	}
	if len(d.findings) == before {
		d.add(check, statusOK, "", "%d webhooks are those of version %s, and trust the operator's certificate", len(webhooks), version.Version())
	}
	return nil
}

// compareWebhooks compares a configuration, and returns its webhooks of controllers that run.
func (d *doctor) compareWebhooks(check string, want, got *unstructured.Unstructured) (found []webhookInCluster, err error) {
	configuration := want.GetKind() + " " + want.GetName()
	byName := map[any]map[string]any{}
	for _, item := range webhooksOf(got) {
		byName[item["name"]] = item
	}
	for _, wanted := range webhooksOf(want) {
		name, _ := wanted["name"].(string)
		resource, _, _ := strings.Cut(name, ".")
		if !d.runs(controllersByResource[resource]) {
			continue
		}
		existing := byName[name]
		if existing == nil {
			d.add(check, statusFailed, d.reinstall(), "the %s lacks the webhook %s", configuration, name)
			continue
		}
		webhook := webhookInCluster{name: name, path: "/validate/" + name}
		if want.GetKind() == "MutatingWebhookConfiguration" {
			webhook.path = "/mutate/" + name
		}
		called, _, _ := unstructured.NestedMap(existing, "clientConfig")
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(called, &webhook.WebhookClientConfig); err != nil {
			return nil, err
		}
		d.writeWatched(wanted["matchConditions"])
		delete(wanted, "clientConfig")
		delete(existing, "clientConfig")
		if path := difference(name, wanted, existing); path != "" {
			d.add(check, d.differs(), d.reinstall(), "the %s is not that of version %s: %s differs", configuration, version.Version(), path)
		}
		found = append(found, webhook)
	}
	return found, nil
}

func webhooksOf(configuration *unstructured.Unstructured) (webhooks []map[string]any) {
	if configuration == nil {
		return nil
	}
	items, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	for _, item := range items {
		if fields, isWebhook := item.(map[string]any); isWebhook {
			webhooks = append(webhooks, fields)
		}
	}
	return webhooks
}

// authorityWarning is how long before its end the certificate authority should be renewed.
const authorityWarning = 30 * 24 * time.Hour

// checkCertificates compares how the API server calls webhooks with the Secret that the operator's Pods mount.
func (d *doctor) checkCertificates(ctx context.Context, check string, webhooks []webhookInCluster) error {
	install := "kubectl yardmaster webhook-ca --namespace " + d.namespace
	fix := install
	if d.certificateSecret() == certManagerSecretName {
		fix = "kubectl rollout restart deployment cert-manager-cainjector --namespace cert-manager"
	}
	secret := &corev1.Secret{}
	err := d.cluster.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: d.certificateSecret()}, secret)
	switch {
	case apierrors.IsNotFound(err):
		d.add(check, statusFailed, fix, "the Secret %s/%s with the certificate of the webhooks does not exist", d.namespace, d.certificateSecret())
		return nil
	case err != nil && !isPermissionError(err):
		return err
	}
	problems := map[string][]string{}
	for i := range webhooks {
		webhook := &webhooks[i]
		problem := ""
		switch service := webhook.Service; {
		case service == nil || service.Namespace != d.namespace:
			problem = "the API server does not call the operator"
		case len(webhook.CABundle) == 0:
			problem = "the API server has no certificate authority"
		case err == nil:
			problem = d.certificateProblem(secret, webhook)
		}
		if problem != "" {
			problems[problem] = append(problems[problem], webhook.name)
		}
	}
	for _, problem := range slices.Sorted(maps.Keys(problems)) {
		d.add(check, statusFailed, fix, "%s for %s", problem, strings.Join(problems[problem], ", "))
	}
	certificate, parseErr := parseCertificate(secret.Data[ca.CertFile])
	if parseErr == nil && fix == install && certificate.NotAfter.Before(d.serverTime.Add(authorityWarning)) {
		d.add(check, statusWarning, install+" --renew", "the certificate authority of the webhooks expires at %s", certificate.NotAfter.Format(time.RFC3339))
	}
	return err
}

// certificateProblem returns why the API server does not accept the certificate of the operator, or calls another path; empty if
// nothing is wrong.
func (d *doctor) certificateProblem(secret *corev1.Secret, webhook *webhookInCluster) string {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(webhook.CABundle)
	options := x509.VerifyOptions{Roots: trusted, CurrentTime: d.serverTime, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	raw, path := secret.Data[ca.CertFile], webhook.path
	if served := secret.Data[corev1.TLSCertKey]; len(served) > 0 {
		raw, options.DNSName = served, webhook.Service.Name+"."+webhook.Service.Namespace+".svc"
	}
	if segment := secret.Data[pathKey]; len(segment) > 0 {
		path = "/" + string(segment) + path
	}
	certificate, err := parseCertificate(raw)
	if err != nil {
		return fmt.Sprintf("the Secret %s/%s has no certificate (%v)", secret.Namespace, secret.Name, err)
	}
	if _, err := certificate.Verify(options); err != nil {
		return fmt.Sprintf("the API server does not accept the certificate in the Secret %s/%s (%v)", secret.Namespace, secret.Name, err)
	}
	if ptr.Deref(webhook.Service.Path, "") != path {
		return fmt.Sprintf("the API server does not use the path in the Secret %s/%s", secret.Namespace, secret.Name)
	}
	return ""
}

func parseCertificate(raw []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("it is not in PEM format")
	}
	return x509.ParseCertificate(block.Bytes)
}

// checkWebhookCalls creates an object as a dry run that only a webhook refuses: the API server accepts most objects without one.
func (d *doctor) checkWebhookCalls(ctx context.Context, check string) error {
	if d.deployment == nil {
		return errNoDeployment
	}
	if d.servesNoWebhooks(check) {
		return nil
	}
	var probe client.Object
	namespace := cmp.Or(d.watched()[0], d.cluster.namespace)
	switch name := (metav1.ObjectMeta{Name: "yardmaster-doctor", Namespace: namespace}); {
	case d.runs("policy"):
		unknown := metav1.LabelSelectorRequirement{Key: "doctor", Operator: "Unknown"}
		probe = &v1alpha1.Policy{ObjectMeta: name, Spec: v1alpha1.PolicySpec{Selector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{unknown},
		}}}
	case d.runs("sequentialjob"):
		sj := &v1alpha1.SequentialJob{ObjectMeta: name}
		sj.Spec.Containers = []v1alpha1.Step{{Name: "step", Container: corev1.Container{Image: "busybox"}, Step: &v1alpha1.StepOptions{When: "doctor"}}}
		probe = sj
	default:
		d.add(check, statusUnknown, "", "neither of the controllers policy and sequentialjob runs, so there is no object to try")
		return nil
	}
	err := d.cluster.Create(ctx, probe, client.DryRunAll)
	_, failure, isFailed := strings.Cut(fmt.Sprint(err), "failed calling webhook ")
	switch {
	case err == nil:
		d.add(check, statusFailed, d.reinstall(), "the API server does not call the webhooks, and accepts invalid objects")
	case isFailed:
		// The URL contains the secret path.
		if before, after, found := strings.Cut(failure, "Post \""); found {
			_, cause, _ := strings.Cut(after, "\": ")
			failure = before + cause
		}
		d.add(check, statusFailed, fmt.Sprintf("kubectl rollout restart deployment %s --namespace %s", operatorName, d.namespace),
			"the API server cannot call %s", failure)
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "denied the request"):
		d.add(check, statusOK, "", "the operator refused an invalid object in namespace %s", namespace)
	default:
		return err
	}
	return nil
}

// checkAdmissionPolicies compares the policies, which hold without the operator, and their bindings with those of this version.
func (d *doctor) checkAdmissionPolicies(ctx context.Context, check string) error {
	if d.deployment == nil {
		return errNoDeployment
	}
	wanted, err := readManifests("admission/policies.yaml")
	if err != nil {
		return err
	}
	if !d.recordsCreatorsByWebhook() {
		mutating, err := readManifests("components/admission-policy/policy.yaml")
		if err != nil {
			return err
		}
		wanted = append(wanted, mutating...)
	}
	problems := 0
	for _, want := range wanted {
		find := d.cluster.inCluster
		if strings.HasPrefix(want.GetKind(), "Mutating") {
			find = d.ofOperator // the others are those of all operators
		}
		got, err := find(ctx, want)
		if err != nil {
			return err
		}
		name := want.GetKind() + " " + want.GetName()
		if got == nil {
			d.add(check, statusFailed, d.reinstallShared(ctx), "the %s does not exist", name)
			problems++
			continue
		}
		if spec, isSpec := want.Object["spec"].(map[string]any); isSpec {
			d.writeWatched(spec["matchConditions"])
		}
		// A binding may have more actions: those of another writer remain when manifests are applied.
		if actions, _, _ := unstructured.NestedStringSlice(got.Object, "spec", "validationActions"); slices.Contains(actions, "Deny") {
			_ = unstructured.SetNestedStringSlice(got.Object, []string{"Deny"}, "spec", "validationActions")
		}
		if path := difference("spec", want.Object["spec"], got.Object["spec"]); path != "" {
			d.add(check, d.differs(), d.reinstallShared(ctx), "the %s is not that of version %s: %s differs", name, version.Version(), path)
			problems++
		}
	}
	if problems == 0 {
		d.add(check, statusOK, "", "%d policies and bindings are those of version %s", len(wanted), version.Version())
	}
	return nil
}
