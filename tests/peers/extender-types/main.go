// The messages of an extender as kube-scheduler's own types write and read them.
//
// `requests` prints one request a line: a path, a tab, a body. `read` reads lines of a type, a tab and a body, decodes each
// as kube-scheduler does, and prints what it understood, or "error: " and why not.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extender "k8s.io/kube-scheduler/extender/v1"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "requests":
		err = requests(os.Stdout)
	case len(os.Args) == 2 && os.Args[1] == "read":
		err = read(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("usage: %s requests|read", os.Args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("250m"),
			}},
		}}},
	}
}

func requests(out io.Writer) error {
	names := []string{"n1", "n2"}
	none := []string{}
	nodes := &corev1.NodeList{Items: []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{ProviderID: "p"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "n2"}},
	}}
	victims := map[string]*extender.Victims{
		"n1": {Pods: []*corev1.Pod{pod("v")}, NumPDBViolations: 1},
		"n2": {},
	}
	meta := map[string]*extender.MetaVictims{
		"n1": {Pods: []*extender.MetaPod{{UID: "v"}}, NumPDBViolations: 1},
		"n2": {Pods: []*extender.MetaPod{}},
	}
	for _, args := range []extender.ExtenderArgs{
		{Pod: pod("a"), NodeNames: &names},
		{Pod: pod("a"), Nodes: nodes},
		{Pod: pod("a"), NodeNames: &none},
		{Pod: pod("a"), Nodes: &corev1.NodeList{}},
		{Pod: &corev1.Pod{}, NodeNames: &names},
	} {
		for _, verb := range []string{"filter", "prioritize"} {
			if err := write(out, verb, args); err != nil {
				return err
			}
		}
	}
	for _, args := range []extender.ExtenderPreemptionArgs{
		{Pod: pod("a"), NodeNameToVictims: victims},
		{Pod: pod("a"), NodeNameToMetaVictims: meta},
		{Pod: pod("a")},
	} {
		if err := write(out, "preempt", args); err != nil {
			return err
		}
	}
	return nil
}

func write(out io.Writer, verb string, args any) error {
	body, err := json.Marshal(args)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\t%s\n", verb, body)
	return err
}

func read(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, body, _ := strings.Cut(lines.Text(), "\t")
		var value any
		switch name {
		case "filter":
			value = &extender.ExtenderFilterResult{}
		case "prioritize":
			value = &extender.HostPriorityList{}
		case "preempt":
			value = &extender.ExtenderPreemptionResult{}
		default:
			return fmt.Errorf("no type for %q", name)
		}
		// The scheduler reads the first value of the body with this decoder.
		if err := json.NewDecoder(bytes.NewBufferString(body)).Decode(value); err != nil {
			fmt.Fprintf(out, "error: %v\n", err)
			continue
		}
		understood, err := json.Marshal(value)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", understood)
	}
	return lines.Err()
}
