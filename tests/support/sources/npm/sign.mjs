// Sign one delivery with each SDK of package.json, and print them as JSON: the file signed.json.
// `make chaos` runs this again and compares. To record anew: npm install && node sign.mjs > signed.json
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { LinearWebhookClient } from "@linear/sdk/webhooks";
import { sign as signForGitHub } from "@octokit/webhooks-methods";
import { getHmac } from "@shopify/shopify-api/test-helpers";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as SvixWebhook } from "svix";
import twilio from "twilio";

const at = 1790000000;
const body = '{"id":"evt_9","type":"invoice.paid","action":"opened","name":"Olá 😀 \\u00e4"}';
const moment = new Date(at * 1000);
const whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const otherWhsec = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url)));

function sample(preset, sdk, secret, headers, signature, rest) {
  return { preset, made_by: `${sdk} ${dependencies[sdk]} (npm)`, secret, at, body, headers, signature, ...rest };
}

function standard(preset, sdk, prefix, signature) {
  const headers = { [`${prefix}-id`]: "msg_9", [`${prefix}-timestamp`]: `${at}`, [`${prefix}-signature`]: signature };
  return sample(preset, sdk, whsec, headers, `${prefix}-signature`, {
    time: `${prefix}-timestamp`,
    timed: true,
    covers: ["body", `${prefix}-id`],
    key: "msg_9",
    type: "invoice.paid",
    other_secret: otherWhsec,
  });
}

const stripeHeader = Stripe.webhooks.generateTestHeaderString({ payload: body, secret: "whsec_test", timestamp: at });
const githubHeaders = {
  "X-Hub-Signature-256": await signForGitHub("Secret", body),
  "X-GitHub-Event": "issues",
  "X-GitHub-Delivery": "d-9",
};
const shopifyHeaders = {
  "X-Shopify-Hmac-Sha256": getHmac(body, "hush"),
  "X-Shopify-Topic": "orders/paid",
  "X-Shopify-Webhook-Id": "w-9",
};

// The SDK of Linear only verifies, by the clock of the machine.
const linearBody = `{"type":"Issue","action":"create","name":"Olá 😀","webhookTimestamp":${at}000}`;
const linearSignature = createHmac("sha256", "lin_wh").update(linearBody).digest("hex");
Date.now = () => at * 1000 + 59000;
if (!new LinearWebhookClient("lin_wh").verify(Buffer.from(linearBody), linearSignature)) {
  throw new Error("the SDK of Linear refuses the signature");
}

const twilioUrl = "https://example.com/in/sample";
const twilioFields = { MessageSid: "SM9", MessageStatus: "read", Body: "Olá 😀 'a=b&c'" };

const signed = [
  standard("standard-webhooks", "standardwebhooks", "webhook", new StandardWebhook(whsec).sign("msg_9", moment, body)),
  standard("svix", "svix", "svix", new SvixWebhook(whsec).sign("msg_9", moment, body)),
  standard("svix", "svix", "webhook", new SvixWebhook(whsec).sign("msg_9", moment, body)),
  sample("stripe", "stripe", "whsec_test", { "Stripe-Signature": stripeHeader }, "stripe-signature", {
    timed: true,
    key: "evt_9",
    type: "invoice.paid",
  }),
  sample("github", "@octokit/webhooks-methods", "Secret", githubHeaders, "x-hub-signature-256", {
    key: "d-9",
    type: "issues.opened",
  }),
  sample("shopify", "@shopify/shopify-api", "hush", shopifyHeaders, "x-shopify-hmac-sha256", {
    key: "w-9",
    type: "orders/paid",
  }),
  {
    ...sample("twilio", "twilio", "12345", {}, "x-twilio-signature", {
      public_url: twilioUrl,
      url: "/in/sample?a=%27",
      covers: ["url", "body"],
      key: "SM9.read",
      type: "message.read",
    }),
    body: new URLSearchParams(twilioFields).toString(),
    headers: {
      "X-Twilio-Signature": twilio.getExpectedTwilioSignature("12345", `${twilioUrl}?a=%27`, twilioFields),
      "Content-Type": "application/x-www-form-urlencoded",
    },
  },
  {
    ...sample("linear", "@linear/sdk", "lin_wh", { "Linear-Signature": linearSignature, "Linear-Delivery": "d-9" },
      "linear-signature", { timed: true, key: "d-9", type: "Issue.create" }),
    body: linearBody,
  },
];
console.log(JSON.stringify(signed, null, 2));
