package integration

import (
	"fmt"
	"path/filepath"
	"strings"
)

func badInputTable(inputs []*badInput) string {
	var page strings.Builder
	page.WriteString(badInputIntroduction)
	for _, section := range badInputSections {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| Error | Message |\n|---|---|\n", section.title, section.text)
		for _, input := range inputs {
			if input.from == section.from {
				fmt.Fprintf(&page, "| [%s](../../test/badinput/%s) | %s |\n", input.title, filepath.Base(input.file), formatCodeCell(input.message))
			}
		}
	}
	return page.String()
}

// formatCodeCell formats text as code in a table cell.
func formatCodeCell(text string) string {
	text = strings.ReplaceAll(text, "|", `\|`)
	if strings.Contains(text, "`") {
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}

const badInputIntroduction = `<!-- Generated from test/badinput by test/integration; do not edit. -->
# Error messages of SequentialJobs

Each message was produced by a real API server. The links lead to the manifests. kubectl puts a
line such as ` + "`Error from server (Invalid): error when creating …`" + ` before
the message, and the server may add that ` + "`some validation rules were not checked`" + `.
`

var badInputSections = []struct{ from, title, text string }{
	{fromDecoding, "Fields that do not exist", "The API server refuses them because kubectl requests strict validation (`--validate=strict`, its default). Other clients get a warning, and the field is dropped."},
	{fromSchema, "Invalid values", "The API server refuses them by the schema in the CustomResourceDefinition."},
	{fromRule, "Invalid combinations of fields", "The API server refuses them by the rules in the CustomResourceDefinition."},
	{fromWebhook, "Errors that depend on other fields or on the state", "The operator's webhook refuses them. Without a webhook, the condition `SpecAccepted` has the same message."},
	{fromCondition, "Errors that Kubernetes' validation of Jobs finds", "Before the first step, the operator creates the Jobs of all steps in a dry run. The SequentialJob fails without running anything."},
	{fromWarning, "Warnings", "The webhook accepts them with a warning."},
	{fromNobody, "Accepted", "These manifests are valid."},
}
