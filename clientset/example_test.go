package clientset_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	yardmaster "github.com/yardmaster/yardmaster/applyconfiguration/api/v1alpha1"
	"github.com/yardmaster/yardmaster/clientset"
)

// A program in the cluster applies a SequentialJob: the first call creates it, and each later one changes only the fields
// that this program sets.
func Example() {
	ctx := context.Background()
	config, err := rest.InClusterConfig()
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	sequence := yardmaster.SequentialJob("invoices", "team-a").
		WithSpec(yardmaster.SequentialJobSpec().WithContainers(
			yardmaster.Step().WithName("extract").WithImage("registry.example/invoices:1").WithArgs("extract"),
			yardmaster.Step().WithName("send").WithImage("registry.example/invoices:1").WithArgs("send"),
		))
	applied, err := client.YardmasterV1alpha1().SequentialJobs("team-a").
		Apply(ctx, sequence, metav1.ApplyOptions{FieldManager: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(applied.Name, applied.Status.Phase)
}
