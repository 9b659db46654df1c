package applyconfiguration_test

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	yardmaster "github.com/yardmaster/yardmaster/applyconfiguration/api/v1alpha1"
)

// An apply configuration contains only the fields that a program sets. The API server gives this program the ownership of
// these, and of no others.
func Example() {
	sequence := yardmaster.SequentialJob("invoices", "team-a").
		WithLabels(map[string]string{"app": "invoices"}).
		WithSpec(yardmaster.SequentialJobSpec().
			WithTemplate(yardmaster.PodTemplate().WithSecurityProfile(v1alpha1.SecurityRestricted)).
			WithContainers(
				yardmaster.Step().WithName("extract").WithImage("registry.example/invoices:1").WithArgs("extract"),
				yardmaster.Step().WithName("send").WithImage("registry.example/invoices:1").WithArgs("send").
					WithStep(yardmaster.StepOptions().WithBackoffLimit(2)),
			))
	manifest, err := yaml.Marshal(sequence)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(string(manifest))
	// Output:
	// apiVersion: yardmaster.dev/v1alpha1
	// kind: SequentialJob
	// metadata:
	//   labels:
	//     app: invoices
	//   name: invoices
	//   namespace: team-a
	// spec:
	//   containers:
	//   - args:
	//     - extract
	//     image: registry.example/invoices:1
	//     name: extract
	//   - args:
	//     - send
	//     image: registry.example/invoices:1
	//     name: send
	//     step:
	//       backoffLimit: 2
	//   template:
	//     securityProfile: Restricted
}
