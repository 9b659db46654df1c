package integration

import (
	"fmt"
	"path/filepath"
	"strings"
)

// badInputTable is the page for users.
func badInputTable(inputs []*badInput) string {
	var page strings.Builder
	page.WriteString(badInputIntroduction)
	for _, section := range badInputSections {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| Mistake | What you are told |\n|---|---|\n", section.title, section.text)
		for _, input := range inputs {
			if input.from == section.from {
				fmt.Fprintf(&page, "| [%s](../test/badinput/%s) | %s |\n", input.title, filepath.Base(input.file), cell(input.says))
			}
		}
	}
	return page.String()
}

// cell is text as code in a table's cell.
func cell(text string) string {
	text = strings.ReplaceAll(text, "|", `\|`)
	if strings.Contains(text, "`") {
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}

const badInputIntroduction = `<!-- Generated from test/badinput by test/integration; do not edit. -->
# What a SequentialJob's mistakes look like

Each row was tried on a real API server, in the words you see here. The links lead to the
manifests. kubectl puts a line such as ` + "`Error from server (Invalid): error when creating …`" + ` before
what the server says, and the server may add that ` + "`some validation rules were not checked`" + `.
`

var badInputSections = []struct{ from, title, text string }{
	{fromDecoding, "Fields that do not exist", "The API server refuses them, as kubectl asks it to (`--validate=strict`, its default). A client that does not ask gets a warning, and the field is dropped."},
	{fromSchema, "Values that a field cannot have", "The API server refuses them by the schema in the CustomResourceDefinition."},
	{fromRule, "Fields that do not go together", "The API server refuses them by the rules in the CustomResourceDefinition."},
	{fromWebhook, "Mistakes that show only in context", "The operator's webhook refuses them. Without a webhook the same words are in the condition `SpecAccepted`."},
	{fromCondition, "Mistakes that only Kubernetes' own checks of Jobs find", "Before its first step, the operator has the API server check the Jobs of all steps. The SequentialJob fails without having run anything."},
	{fromWarning, "What is allowed, but seldom meant", "The webhook warns, and lets it pass."},
	{fromNobody, "What is no mistake", "It is taken."},
}
